#include "trainer/step/grad_norm.h"

#include <cmath>

#include "trainer/step/world_sum.h"

namespace ckpt::trainer {
namespace {

// Calls `use(piece, its gradient as rows)` for every piece that this rank counts.
template <typename Use>
void ForEachCounted(const ParamStore& store, const Use& use) {
  for (const MainArrays& main : store.mains()) {
    if (!main.counts || !main.gradient) continue;
    for (const ParamPiece& piece : main.pieces) {
      const Tensor flat = main.gradient.Rows(piece.main_offset, piece.rows * piece.row_elems);
      use(piece, flat.Reshape({piece.rows, piece.row_elems}));
    }
  }
}

}  // namespace

std::int64_t CountNormRows(std::span<const UnitSpec> units, const ShardPlan& plan) {
  std::int64_t rows = 0;
  for (const GroupPlan& group : plan.groups) {
    if (!group.trainable || !group.counts_main) continue;
    for (const ParamPiece& piece : ListPieces(units[static_cast<std::size_t>(group.unit)], group)) {
      rows += piece.rows;
    }
  }
  return rows;
}

Result<GradNorm> GradNorm::Create(const ParamStore& store, HostGroup& world, Ops& ops,
                                  Device& device) {
  GradNorm norm(store, world, ops, device);
  std::int64_t rows = 0;
  ForEachCounted(store, [&](const ParamPiece& piece, const Tensor&) { rows += piece.rows; });
  CKPT_ASSIGN_OR_RETURN(norm.memory_, device.Allocate(NormBytes(rows), MemoryUse::kOther));
  norm.row_sums_ = Tensor(norm.memory_.data(), DType::kFloat64, {rows});
  return norm;
}

Result<double> GradNorm::Compute(Queue& queue, double scale) {
  std::int64_t row = 0;
  ForEachCounted(*store_, [&](const ParamPiece& piece, const Tensor& gradient) {
    ops_->SumSquares(queue, gradient, scale, row_sums_.Rows(row, piece.rows));
    row += piece.rows;
  });
  std::vector<double> row_sums(static_cast<std::size_t>(row));
  if (row > 0) device_->CopyToHost(queue, row_sums_, row_sums.data());
  CKPT_RETURN_IF_ERROR(queue.Synchronize());

  ExactSum total;
  for (const double sum : row_sums) total.Add(sum);
  CKPT_RETURN_IF_ERROR(SumOverRanks(*world_, {&total, 1}));
  const double norm = std::sqrt(total.Value());
  if (!std::isfinite(norm)) return NotFinite(row_sums);
  return norm;
}

Status GradNorm::NotFinite(const std::vector<double>& row_sums) const {
  std::string name;
  std::size_t row = 0;
  ForEachCounted(*store_, [&](const ParamPiece& piece, const Tensor&) {
    for (std::int64_t i = 0; i < piece.rows; ++i, ++row) {
      if (name.empty() && !std::isfinite(row_sums[row])) name = piece.spec->name;
    }
  });
  Status status = Error(ErrorKind::kValueMismatch, "a gradient is not finite");
  return name.empty() ? std::move(status).Hint("the error of another rank names the parameter")
                      : std::move(status).Tensor(name);
}

}  // namespace ckpt::trainer

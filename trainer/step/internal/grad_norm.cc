#include "trainer/step/internal/grad_norm.h"

#include <algorithm>

#include "core/base/check.h"

namespace ckpt::trainer {
namespace {

// Calls `use(main, piece)` for every piece that this rank counts.
template <typename Use>
void ForEachCounted(const ParamStore& store, const Use& use) {
  for (const MainArrays& main : store.mains()) {
    if (!main.counts || !main.gradient) continue;
    for (const ParamPiece& piece : main.pieces) use(main, piece);
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

Result<GradNorm> GradNorm::Create(ParamStore& store, Ops& ops, Device& device) {
  GradNorm norm(store, ops);
  std::int64_t count = 0;
  ForEachCounted(store, [&](const MainArrays&, const ParamPiece& piece) { count += piece.rows; });
  CKPT_ASSIGN_OR_RETURN(norm.memory_, device.Allocate(NormBytes(count), MemoryUse::kOther));
  norm.row_sums_ = Tensor(norm.memory_.data(), DType::kFloat64, {count});
  store.LeaveSquares(norm.row_sums_);
  return norm;
}

void GradNorm::ListRows(int last_unit) {
  early_rows_.clear();
  last_rows_.clear();
  for (const MainArrays& main : store_->mains()) {
    if (main.has_squares) continue;
    const bool is_last = store_->plan().groups[main.group].unit == last_unit;
    for (const ShardRows& run : main.rows) {
      const GradientSum rows = main.gradient.Rows(run.begin, run.rows() * run.columns);
      (is_last ? last_rows_ : early_rows_)
          .push_back({.x = rows.Reshape({run.rows(), run.columns}), .sums = run.squares});
    }
  }
  // Rows of one dtype behind one another need fewer launches.
  std::stable_partition(early_rows_.begin(), early_rows_.end(),
                        [](const RowSquares& rows) { return static_cast<bool>(rows.x.second); });
}

void GradNorm::SquareEarly(Queue& queue, int last_unit) {
  ListRows(last_unit);
  ops_->SumSquares(queue, early_rows_);
}

void GradNorm::Add(Queue& queue, const Tensor& update, const Tensor& sums, const Tensor& outcome) {
  ops_->SumSquares(queue, last_rows_);
  ops_->AddSquares(queue, row_sums_, update, sums, outcome);
}

const std::string& GradNorm::NameOf(std::int64_t row) const {
  const std::string* name = nullptr;
  ForEachCounted(*store_, [&](const MainArrays&, const ParamPiece& piece) {
    if (name == nullptr && row < piece.rows) name = &piece.spec->name;
    row -= piece.rows;
  });
  CKPT_CHECK(name != nullptr);
  return *name;
}

}  // namespace ckpt::trainer

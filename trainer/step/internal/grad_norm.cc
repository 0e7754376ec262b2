#include "trainer/step/internal/grad_norm.h"

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

Tensor GradientOf(const MainArrays& main, const ParamPiece& piece) {
  const Tensor flat = main.gradient.Rows(piece.main_offset, piece.rows * piece.row_elems);
  return flat.Reshape({piece.rows, piece.row_elems});
}

// Whether `rows` continues where `before` ends.
bool Continues(const Tensor& before, const Tensor& rows) {
  return before.dim(1) == rows.dim(1) && before.bytes() + before.size_bytes() == rows.bytes();
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

Result<GradNorm> GradNorm::Create(const ParamStore& store, Ops& ops, Device& device) {
  GradNorm norm(store, ops);
  norm.ListRows();
  std::int64_t count = 0;
  for (const RowSquares& rows : norm.rows_) count += rows.x.dim(0);
  CKPT_ASSIGN_OR_RETURN(norm.memory_, device.Allocate(NormBytes(count), MemoryUse::kOther));
  norm.row_sums_ = Tensor(norm.memory_.data(), DType::kFloat64, {count});
  std::int64_t first = 0;
  for (RowSquares& rows : norm.rows_) {
    rows.sums = norm.row_sums_.Rows(first, rows.x.dim(0));
    first += rows.x.dim(0);
  }
  return norm;
}

void GradNorm::ListRows() {
  ForEachCounted(*store_, [&](const MainArrays& main, const ParamPiece& piece) {
    const Tensor gradient = GradientOf(main, piece);
    if (!rows_.empty() && Continues(rows_.back().x, gradient)) {
      rows_.back().x.dims[0] += piece.rows;
    } else {
      rows_.push_back({.x = gradient});
    }
  });
}

void GradNorm::Add(Queue& queue, const Tensor& update, const Tensor& sums, const Tensor& outcome) {
  ops_->SumSquares(queue, rows_, update);
  ops_->AddSquares(queue, row_sums_, sums, outcome);
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

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

GradientSum GradientOf(const MainArrays& main, const ParamPiece& piece) {
  const GradientSum flat = main.gradient.Rows(piece.main_offset, piece.rows * piece.row_elems);
  return flat.Reshape({piece.rows, piece.row_elems});
}

// Whether `rows` continues where `before` ends.
bool Continues(const Tensor& before, const Tensor& rows) {
  if (!before || !rows) return !before && !rows;
  return before.dtype == rows.dtype && before.dim(1) == rows.dim(1) &&
         before.bytes() + before.size_bytes() == rows.bytes();
}
bool Continues(const RowSquares& before, const RowSquares& rows) {
  return Continues(before.x.first, rows.x.first) && Continues(before.x.second, rows.x.second) &&
         before.sums.bytes() + before.sums.size_bytes() == rows.sums.bytes();
}

// `to` has `rows` more, which continue it.
void Extend(RowSquares& to, std::int64_t rows) {
  for (Tensor* tensor : {&to.x.first, &to.x.second, &to.sums}) {
    if (*tensor) tensor->dims[0] += rows;
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
  std::int64_t first = 0;
  ForEachCounted(*store_, [&](const MainArrays& main, const ParamPiece& piece) {
    const bool is_last = store_->plan().groups[main.group].unit == last_unit;
    std::vector<RowSquares>& rows = is_last ? last_rows_ : early_rows_;
    const RowSquares next = {.x = GradientOf(main, piece),
                             .sums = row_sums_.Rows(first, piece.rows)};
    first += piece.rows;
    if (main.has_squares) return;
    if (!rows.empty() && Continues(rows.back(), next)) return Extend(rows.back(), piece.rows);
    rows.push_back(next);
  });
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

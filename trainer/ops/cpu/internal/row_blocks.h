// Sums over rows, with results that do not depend on the number of threads.
#ifndef CKPT_TRAINER_OPS_CPU_INTERNAL_ROW_BLOCKS_H_
#define CKPT_TRAINER_OPS_CPU_INTERNAL_ROW_BLOCKS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/check.h"
#include "trainer/device/tensor.h"
#include "trainer/ops/cpu/internal/numeric.h"
#include "trainer/ops/cpu/internal/parallel.h"
#include "trainer/ops/cpu/internal/vector_loop.h"
#include "trainer/ops/gradient.h"

namespace ckpt::trainer {

// Elements that are worth starting a thread for.
inline constexpr std::int64_t kGrainElems = std::int64_t{1} << 14;

// The same as a number of rows of `row_elems`.
[[nodiscard]] inline std::int64_t GrainRows(std::int64_t row_elems) {
  return std::max<std::int64_t>(1, kGrainElems / std::max<std::int64_t>(1, row_elems));
}

// How many of `max_rows` rows are in use: what `count` int32 [1] says when the queue runs the call;
// null: all.
[[nodiscard]] inline std::int64_t RowsInUse(const Tensor& count, std::int64_t max_rows) {
  if (!count) return max_rows;
  CKPT_CHECK(count.dtype == DType::kInt32 && count.num_elems() == 1);
  const std::int64_t rows = *count.as<const std::int32_t>();
  CKPT_CHECK(rows >= 0 && rows <= max_rows);
  return rows;
}

// Sums over rows, one per column. Any thread may sum a block of kRows rows, in order of its rows;
// the blocks are added in their order.
template <typename S>
class RowBlockSums {
 public:
  static constexpr std::int64_t kRows = 64;

  // `columns` may be 0, for a frozen parameter: then nothing is summed.
  RowBlockSums(std::int64_t rows, std::int64_t columns)
      : rows_(rows),
        columns_(columns),
        partials_(static_cast<std::size_t>(num_blocks() * columns)) {}

  [[nodiscard]] std::int64_t num_blocks() const { return (rows_ + kRows - 1) / kRows; }
  // The `columns` sums of a block, zero at first.
  [[nodiscard]] S* block(std::int64_t index) { return partials_.data() + index * columns_; }

  // Calls `body(row, sums of its block)` for every row, blocks in parallel.
  template <typename Body>
  void ForRows(Parallel& parallel, std::int64_t row_elems, const Body& body) {
    const std::int64_t grain = (GrainRows(row_elems) + kRows - 1) / kRows;
    parallel.For(num_blocks(), grain, [&](std::int64_t begin, std::int64_t end) {
      WithWidestVectors([&] {
        for (std::int64_t index = begin; index < end; ++index) {
          const std::int64_t row_end = std::min(rows_, (index + 1) * kRows);
          for (std::int64_t row = index * kRows; row < row_end; ++row) body(row, block(index));
        }
      });
    });
  }

  // gradient [columns] = the sums, each rounded once.
  void Write(Parallel& parallel, const Gradient& gradient) {
    CKPT_CHECK(gradient.tensor.num_elems() == columns_);
    DispatchGradient(gradient.tensor.dtype, [&](auto tag) {
      using G = typename decltype(tag)::type;
      G* const to = gradient.tensor.as<G>();
      parallel.For(columns_, GrainRows(num_blocks()), [&](std::int64_t begin, std::int64_t end) {
        std::vector<double> totals(static_cast<std::size_t>(end - begin));
        for (std::int64_t index = 0; index < num_blocks(); ++index) {
          const S* from = block(index) + begin;
          ForEach(0, end - begin,
                  [&, sums = totals.data()](std::int64_t i) { sums[i] += from[i]; });
        }
        if (!gradient.adds()) std::fill(to + begin, to + end, G{});
        for (std::int64_t i = begin; i < end; ++i) {
          AccumulateInto(to[i], totals[static_cast<std::size_t>(i - begin)]);
        }
      });
    });
  }

 private:
  const std::int64_t rows_;
  const std::int64_t columns_;
  std::vector<S> partials_;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPS_CPU_INTERNAL_ROW_BLOCKS_H_

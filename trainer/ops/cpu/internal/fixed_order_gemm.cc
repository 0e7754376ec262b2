#include "trainer/ops/cpu/internal/fixed_order_gemm.h"

#include <algorithm>
#include <type_traits>

#include "core/base/check.h"
#include "core/base/checked_math.h"
#include "trainer/ops/cpu/internal/scratch.h"

namespace ckpt::trainer {
namespace {

// Sizes of the blocks of operands that are packed in the order in which the kernel reads them. A
// panel of b stays in the first-level cache, a block of a in the second.
constexpr std::int64_t kDepth = 256;
constexpr std::int64_t kRows = 336;  // a multiple of every kernel's rows
constexpr std::int64_t kColumns = 2048;

template <typename R>
const GemmKernel<R>& KernelFor(const GemmKernels& kernels) {
  if constexpr (std::is_same_v<R, double>) {
    return kernels.f64;
  } else {
    return kernels.f32;
  }
}

// Packs `depth` × `count` elements into panels of `width`, one after another, each [depth, width].
// The last panel is filled up with arbitrary values. Element (p, i) of the source is from.at(p, i).
template <typename T>
void Pack(const GemmKernel<Real<T>>& kernel, const Matrix<T>& from, std::int64_t depth,
          std::int64_t count, std::int64_t width, Real<T>* to) {
  for (std::int64_t first = 0; first < count; first += width, to += depth * width) {
    const std::int64_t used = std::min(width, count - first);
    if (from.column_stride == 1) {
      for (std::int64_t p = 0; p < depth; ++p) {
        const T* const row = from.at(p, first);
        for (std::int64_t i = 0; i < used; ++i) to[p * width + i] = Load(row[i]);
      }
    } else if constexpr (std::is_same_v<T, Real<T>>) {
      CKPT_CHECK(from.row_stride == 1);
      kernel.pack_lines(depth, from.at(0, first), from.column_stride, used, width, to);
    } else {
      // Copies along p, in strips so short that the cache lines they are scattered to stay in the
      // cache.
      constexpr std::int64_t kStrip = 16;
      for (std::int64_t p = 0; p < depth; p += kStrip) {
        const std::int64_t end = std::min(p + kStrip, depth);
        for (std::int64_t i = 0; i < used; ++i) {
          const T* at = from.at(p, first + i);
          for (std::int64_t q = p; q < end; ++q, at += from.row_stride)
            to[q * width + i] = Load(*at);
        }
      }
    }
  }
}

// The length of the first part if `whole` is cut into as few equal parts as possible, each at most
// `largest` long.
std::int64_t FairPart(std::int64_t whole, std::int64_t largest) {
  const std::int64_t parts = (whole + largest - 1) / largest;
  return (whole + parts - 1) / parts;
}

// Computes one kernel-sized block of c, of which `rows` × `columns` exist.
template <typename R>
void RunBlock(const GemmKernel<R>& kernel, std::int64_t depth, const R* a, const R* b, bool resume,
              std::int64_t rows, std::int64_t columns, R* c, std::int64_t c_stride) {
  if (rows == kernel.rows && columns == kernel.columns) {
    kernel.run(depth, a, b, resume, c, c_stride);
    return;
  }
  constexpr std::int64_t kLargest = 14 * 32;
  R block[kLargest] = {};
  if (resume) {
    for (std::int64_t i = 0; i < rows; ++i)
      std::copy_n(c + i * c_stride, columns, block + i * kernel.columns);
  }
  kernel.run(depth, a, b, resume, block, kernel.columns);
  for (std::int64_t i = 0; i < rows; ++i)
    std::copy_n(block + i * kernel.columns, columns, c + i * c_stride);
}

}  // namespace

template <typename T>
void FixedOrderGemm(const ProductSize& size, const Matrix<T>& a, const Matrix<T>& b,
                    bool accumulate, Real<T>* c, std::int64_t c_stride,
                    const GemmKernels& kernels) {
  using R = Real<T>;
  const GemmKernel<R>& kernel = KernelFor<R>(kernels);
  const auto [m, n, k] = size;
  if (k == 0 && !accumulate) {
    for (std::int64_t i = 0; i < m; ++i) std::fill_n(c + i * c_stride, n, R{0});
  }
  thread_local Scratch a_scratch;
  thread_local Scratch b_scratch;
  for (std::int64_t column = 0; column < n; column += kColumns) {
    const std::int64_t columns = std::min(kColumns, n - column);
    // This loop is ascending and outside the others: each depth block continues the chains of the
    // one before.
    for (std::int64_t p = 0, depth = 0; p < k; p += depth) {
      depth = FairPart(k - p, kDepth);
      const bool resume = accumulate || p > 0;
      R* const packed_b =
          b_scratch.Get<R>(depth * AlignUp(columns, kernel.columns) + kernel.kPastPanel);
      Pack(kernel, b.From(p, column), depth, columns, kernel.columns, packed_b);
      for (std::int64_t row = 0; row < m; row += kRows) {
        const std::int64_t rows = std::min(kRows, m - row);
        R* const packed_a =
            a_scratch.Get<R>(depth * AlignUp(rows, kernel.rows) + kernel.kPastPanel);
        Pack(kernel, a.From(row, p).Transposed(), depth, rows, kernel.rows, packed_a);
        for (std::int64_t j = 0; j < columns; j += kernel.columns) {
          for (std::int64_t i = 0; i < rows; i += kernel.rows) {
            RunBlock(kernel, depth, packed_a + i * depth, packed_b + j * depth, resume,
                     std::min(kernel.rows, rows - i), std::min(kernel.columns, columns - j),
                     c + (row + i) * c_stride + column + j, c_stride);
          }
        }
      }
    }
  }
}

template void FixedOrderGemm<float>(const ProductSize&, const Matrix<float>&, const Matrix<float>&,
                                    bool, float*, std::int64_t, const GemmKernels&);
template void FixedOrderGemm<double>(const ProductSize&, const Matrix<double>&,
                                     const Matrix<double>&, bool, double*, std::int64_t,
                                     const GemmKernels&);
template void FixedOrderGemm<Bf16>(const ProductSize&, const Matrix<Bf16>&, const Matrix<Bf16>&,
                                   bool, float*, std::int64_t, const GemmKernels&);

}  // namespace ckpt::trainer

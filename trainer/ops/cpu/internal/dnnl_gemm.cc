#include "trainer/ops/cpu/internal/dnnl_gemm.h"

#include <algorithm>
#include <oneapi/dnnl/dnnl.h>

#include "core/base/check.h"
#include "trainer/ops/cpu/internal/dnnl_thread.h"
#include "trainer/ops/cpu/internal/scratch.h"

namespace ckpt::trainer {
namespace {

// Lines a multiple of this apart displace each other in the caches, where the library reads columns
// of a transposed `a`, or reads `b` in place. It does the latter if neither is transposed and the
// sum is short, and is then up to 1.8 times as slow. A copy with other strides costs a tenth of
// that, if each of its elements is used so often.
// In other products a copy of `b` costs more than it brings.
constexpr std::int64_t kConflictBytes = 4096;
constexpr std::int64_t kMinUses = 64;
// The part of a product for which operands are copied at once: a copy stays in the second-level
// cache. A sum over more rows of a transposed `a` is 10 to 20 % slower in any case.
constexpr ProductSize kTile{.m = 512, .n = 1024, .k = 512};

struct DnnlOperand {
  char transpose = 'N';
  std::int64_t stride = 1;
};

bool HasConflicts(const Matrix<float>& matrix) {
  const std::int64_t stride = std::max(matrix.row_stride, matrix.column_stride);
  return stride * static_cast<std::int64_t>(sizeof(float)) % kConflictBytes == 0;
}

// The first rows × columns elements of `matrix` in the same order, in lines without conflicts.
Matrix<float> CopyOf(const Matrix<float>& matrix, std::int64_t rows, std::int64_t columns,
                     Scratch& scratch) {
  if (matrix.column_stride != 1) {
    return CopyOf(matrix.Transposed(), columns, rows, scratch).Transposed();
  }
  constexpr std::int64_t kCacheLine = 16;                                     // elements
  const std::int64_t stride = ((columns / kCacheLine + 1) | 1) * kCacheLine;  // an odd number
  float* const to = scratch.Get<float>(rows * stride);
  for (std::int64_t i = 0; i < rows; ++i) std::copy_n(matrix.at(i, 0), columns, to + i * stride);
  return {to, stride, 1};
}

DnnlOperand Describe(const Matrix<float>& matrix, std::int64_t rows, std::int64_t columns) {
  // A matrix of one row or column may have any other stride, but the library requires one that is
  // at least a row's length.
  if (matrix.column_stride == 1) return {'N', rows == 1 ? columns : matrix.row_stride};
  CKPT_CHECK(matrix.row_stride == 1);
  return {'T', columns == 1 ? rows : matrix.column_stride};
}

void Call(const ProductSize& size, const Matrix<float>& a, const Matrix<float>& b, float beta,
          float* c, std::int64_t c_stride) {
  const DnnlOperand left = Describe(a, size.m, size.k);
  const DnnlOperand right = Describe(b, size.k, size.n);
  const dnnl_status_t status =
      dnnl_sgemm(left.transpose, right.transpose, size.m, size.n, size.k, 1.0F, a.data, left.stride,
                 b.data, right.stride, beta, c, c_stride);
  CKPT_CHECK(status == dnnl_success);
}

}  // namespace

void DnnlGemm(const ProductSize& size, const Matrix<float>& a, const Matrix<float>& b,
              bool accumulate, float* c, std::int64_t c_stride) {
  const auto [m, n, k] = size;
  if (m == 0 || n == 0) return;
  if (k == 0) {  // a sum of nothing, which the library does not write
    for (std::int64_t i = 0; i < m && !accumulate; ++i) std::fill_n(c + i * c_stride, n, 0.0F);
    return;
  }
  UseThisThreadAlone();
  thread_local Scratch a_scratch;
  thread_local Scratch b_scratch;
  const bool a_is_transposed = a.column_stride != 1;
  const bool copies_a = a_is_transposed && n >= kMinUses && HasConflicts(a);
  const bool copies_b =
      !a_is_transposed && b.column_stride == 1 && k <= kTile.k && m >= kMinUses && HasConflicts(b);
  const ProductSize tile{
      .m = copies_a ? kTile.m : m, .n = copies_b ? kTile.n : n, .k = a_is_transposed ? kTile.k : k};
  for (std::int64_t p = 0; p < k; p += tile.k) {
    const std::int64_t depth = std::min(tile.k, k - p);
    const float beta = accumulate || p > 0 ? 1.0F : 0.0F;
    for (std::int64_t i = 0; i < m; i += tile.m) {
      const std::int64_t rows = std::min(tile.m, m - i);
      const Matrix<float> part_of_a = a.From(i, p);
      const Matrix<float> left = copies_a ? CopyOf(part_of_a, rows, depth, a_scratch) : part_of_a;
      for (std::int64_t j = 0; j < n; j += tile.n) {
        const std::int64_t columns = std::min(tile.n, n - j);
        const Matrix<float> part_of_b = b.From(p, j);
        const Matrix<float> right =
            copies_b ? CopyOf(part_of_b, depth, columns, b_scratch) : part_of_b;
        Call({rows, columns, depth}, left, right, beta, c + i * c_stride + j, c_stride);
      }
    }
  }
}

}  // namespace ckpt::trainer

#include <algorithm>

#include "core/base/check.h"
#include "trainer/device/cpu/host_device.h"
#include "trainer/ops/cpu/host_ops_impl.h"
#include "trainer/ops/cpu/matrix.h"
#include "trainer/ops/cpu/numeric.h"
#include "trainer/ops/cpu/product.h"

namespace ckpt::trainer {
namespace {

// Rows or columns of d per thread. Each thread packs the whole of one operand, so fewer would be
// slow.
constexpr std::int64_t kTaskLines = 512;
// A product with fewer multiplications is done before a second thread has woken up.
constexpr std::int64_t kSharedProducts = std::int64_t{1} << 19;

struct Operand {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  bool transpose = false;

  Operand(const Tensor& tensor, bool is_transposed) : transpose(is_transposed) {
    CKPT_CHECK(tensor.ndim == 2);
    rows = tensor.dim(is_transposed ? 1 : 0);
    columns = tensor.dim(is_transposed ? 0 : 1);
  }

  template <typename T>
  [[nodiscard]] Matrix<T> View(const Tensor& tensor) const {
    const Matrix<T> stored{tensor.as<const T>(), tensor.dim(1), 1};
    return transpose ? stored.Transposed() : stored;
  }
};

// Divides the longer side of d among the threads.
template <typename T, typename G>
void ShareProduct(Parallel& parallel, SumOrder order, const ProductSize& size, const Matrix<T>& a,
                  const Matrix<T>& b, bool accumulate, G* d) {
  const bool by_rows = size.m >= size.n;
  const std::int64_t lines = by_rows ? size.m : size.n;
  const bool is_shared = size.m * size.n * size.k >= kSharedProducts;
  const std::int64_t fair = (lines + parallel.threads() - 1) / parallel.threads();
  parallel.For(lines, is_shared ? std::min(fair, kTaskLines) : lines,
               [&](std::int64_t begin, std::int64_t end) {
                 ProductSize part = size;
                 (by_rows ? part.m : part.n) = end - begin;
                 if (by_rows) {
                   MultiplyInto(order, part, a.From(begin, 0), b, accumulate, d + begin * size.n,
                                size.n);
                 } else {
                   MultiplyInto(order, part, a, b.From(0, begin), accumulate, d + begin, size.n);
                 }
               });
}

}  // namespace

void HostOps::Gemm(Queue& queue, const GemmForm& form, const Tensor& a, const Tensor& b,
                   const Tensor& d) {
  const Operand left(a, form.transpose_a);
  const Operand right(b, form.transpose_b);
  CKPT_CHECK(a.dtype == b.dtype && left.columns == right.rows);
  CKPT_CHECK(d.ndim == 2 && d.dim(0) == left.rows && d.dim(1) == right.columns);
  const ProductSize size{left.rows, right.columns, left.columns};
  const SumOrder order = fixed_order_ ? SumOrder::kFixed : SumOrder::kAny;
  RunOn(queue, [this, order, size, left, right, a, b, d, accumulate = form.accumulate] {
    DispatchCompute(a.dtype, [&](auto compute) {
      using T = typename decltype(compute)::type;
      DispatchGradient(d.dtype, [&](auto gradient) {
        using G = typename decltype(gradient)::type;
        ShareProduct(parallel_, order, size, left.View<T>(a), right.View<T>(b), accumulate,
                     d.as<G>());
      });
    });
  });
}

}  // namespace ckpt::trainer

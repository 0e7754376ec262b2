#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "core/base/check.h"
#include "trainer/device/cpu/host_device.h"
#include "trainer/ops/cpu/internal/host_ops_impl.h"
#include "trainer/ops/cpu/internal/matrix.h"
#include "trainer/ops/cpu/internal/numeric.h"
#include "trainer/ops/cpu/internal/product.h"
#include "trainer/ops/cpu/internal/row_blocks.h"
#include "trainer/ops/cpu/internal/scratch.h"
#include "trainer/ops/cpu/internal/vector_loop.h"
#include "trainer/ops/router_logits_shape.h"

namespace ckpt::trainer {
namespace {

// Rows or columns of d per thread. Each thread packs the whole of one operand, so fewer would be
// slow.
constexpr std::int64_t kTaskLines = 512;
// A product with fewer multiplications is done before a second thread has woken up.
constexpr std::int64_t kSharedProducts = std::int64_t{1} << 19;
// Tokens of which the router's backward has gradients or a wide copy at once, in memory that nobody
// counts.
constexpr std::int64_t kRouterChunk = 2048;

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

// Divides the rows of d among the threads if each gets enough of them, because the library is up to
// a quarter slower on a part of each row of a wide d. Otherwise divides the longer side.
template <typename T, typename G>
void ShareProduct(Parallel& parallel, SumOrder order, const ProductSize& size, const Matrix<T>& a,
                  const Matrix<T>& b, bool accumulate, G* d) {
  const bool by_rows = size.m >= std::min(size.n, kTaskLines * parallel.threads());
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

// A matrix in the compute type: as it is, or widened in `scratch`.
template <typename T>
Matrix<Real<T>> Widen(Parallel& parallel, const Tensor& matrix, Scratch& scratch) {
  if constexpr (std::is_same_v<T, Real<T>>) {
    return {matrix.as<const T>(), matrix.dim(1), 1};
  } else {
    const T* const from = matrix.as<const T>();
    Real<T>* const wide = scratch.Get<Real<T>>(matrix.num_elems());
    parallel.For(matrix.num_elems(), kGrainElems, [&](std::int64_t begin, std::int64_t end) {
      WithWidestVectors(
          [=] { ForEach(begin, end, [=](std::int64_t i) { wide[i] = Load(from[i]); }); });
    });
    return {wide, matrix.dim(1), 1};
  }
}

// dweight = (or +=) dlogitsᵀ · x. Of an x that is not in the compute type, a chunk is widened at
// once. The products of the chunks are added up in the compute type and rounded once.
template <typename T, typename G>
void RouterWeightsBackward(Parallel& parallel, SumOrder order, const RouterLogitsShape& shape,
                           const Tensor& dlogits, const Tensor& x, const Gradient& dweight) {
  using S = Real<T>;
  constexpr bool kIsWide = std::is_same_v<T, S>;
  constexpr bool kSumsInPlace = kIsWide || std::is_same_v<G, S>;
  using Sum = std::conditional_t<kSumsInPlace, G, S>;
  thread_local Scratch x_scratch;
  thread_local Scratch sum_scratch;
  const std::int64_t elems = shape.experts * shape.columns;
  G* const gradient = dweight.tensor.as<G>();
  Sum* sums = nullptr;
  if constexpr (kSumsInPlace) {
    sums = gradient;
  } else {
    sums = sum_scratch.Get<Sum>(elems);
  }
  const std::int64_t chunk = kIsWide ? std::max<std::int64_t>(shape.tokens, 1) : kRouterChunk;
  for (std::int64_t first = 0; first == 0 || first < shape.tokens;
       first += chunk) {  // zeros if none
    const std::int64_t count = std::min(chunk, shape.tokens - first);
    const Matrix<S> of_chunk{dlogits.as<const S>() + first * shape.experts, shape.experts, 1};
    ShareProduct(parallel, order, {shape.experts, shape.columns, count}, of_chunk.Transposed(),
                 Widen<T>(parallel, x.Rows(first, count), x_scratch),
                 first > 0 || (kSumsInPlace && dweight.adds()), sums);
  }
  if constexpr (!kSumsInPlace) {
    if (!dweight.adds()) std::fill_n(gradient, elems, G{});
    for (std::int64_t i = 0; i < elems; ++i) AccumulateInto(gradient[i], sums[i]);
  }
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

void HostOps::RouterLogitsBackward(Queue& queue, const Tensor& dlogits, const Tensor& x,
                                   const Tensor& weight, const Tensor& dx,
                                   const Gradient& dweight) {
  const RouterLogitsShape shape = RouterLogitsShapeOf(dlogits, x, weight, dx, dweight);
  const SumOrder order = fixed_order_ ? SumOrder::kFixed : SumOrder::kAny;
  RunOn(queue, [=, this] {
    DispatchCompute(x.dtype, [&](auto compute) {
      using T = typename decltype(compute)::type;
      using S = Real<T>;
      thread_local Scratch scratch;
      thread_local Scratch product_scratch;
      const std::int64_t tokens = shape.tokens;
      const std::int64_t experts = shape.experts;
      const std::int64_t columns = shape.columns;
      const Matrix<S> wide_weight = Widen<T>(parallel_, weight, scratch);
      S* const product = product_scratch.Get<S>(std::min(tokens, kRouterChunk) * columns);
      for (std::int64_t first = 0; first < tokens; first += kRouterChunk) {
        const std::int64_t count = std::min(kRouterChunk, tokens - first);
        const Matrix<S> of_chunk{dlogits.as<const S>() + first * experts, experts, 1};
        ShareProduct(parallel_, order, {count, columns, experts}, of_chunk, wide_weight,
                     /*accumulate=*/false, product);
        T* const to = dx.as<T>() + first * columns;
        parallel_.For(count * columns, kGrainElems, [=](std::int64_t begin, std::int64_t end) {
          WithWidestVectors([=] {
            ForEach(begin, end,
                    [=](std::int64_t i) { to[i] = Store<T>(Load(to[i]) + product[i]); });
          });
        });
      }
      if (!dweight) return;
      DispatchGradient(dweight.tensor.dtype, [&](auto gradient) {
        using G = typename decltype(gradient)::type;
        RouterWeightsBackward<T, G>(parallel_, order, shape, dlogits, x, dweight);
      });
    });
  });
}

}  // namespace ckpt::trainer

// The matrix product that all ops of one HostOps use: the library's, or the one in fixed order.
#ifndef CKPT_TRAINER_OPS_CPU_INTERNAL_PRODUCT_H_
#define CKPT_TRAINER_OPS_CPU_INTERNAL_PRODUCT_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "trainer/ops/cpu/internal/dnnl_gemm.h"
#include "trainer/ops/cpu/internal/dnnl_matmul.h"
#include "trainer/ops/cpu/internal/fixed_order_gemm.h"
#include "trainer/ops/cpu/internal/matrix.h"
#include "trainer/ops/cpu/internal/numeric.h"
#include "trainer/ops/cpu/internal/scratch.h"

namespace ckpt::trainer {

enum class SumOrder : std::uint8_t { kAny, kFixed };

// c = (or +=) a · b in the compute type. The library has products of float32 and, on some
// processors, of bfloat16; FixedOrderGemm has those of every type.
template <typename T>
void Multiply(SumOrder order, const ProductSize& size, const Matrix<T>& a, const Matrix<T>& b,
              bool accumulate, Real<T>* c, std::int64_t c_stride) {
  if constexpr (std::is_same_v<T, float>) {
    if (order == SumOrder::kAny) return DnnlGemm(size, a, b, accumulate, c, c_stride);
  }
  if constexpr (std::is_same_v<T, Bf16>) {
    if (order == SumOrder::kAny && MultipliesBfloat16()) {
      return DnnlMatmul(size, a, b, accumulate, c, c_stride);
    }
  }
  FixedOrderGemm(size, a, b, accumulate, c, c_stride);
}

// d = (or +=) a · b for d of any dtype of gradients. Each product is rounded once. If d's dtype is
// not the compute type, the whole product is computed first and then added.
template <typename T, typename G>
void MultiplyInto(SumOrder order, const ProductSize& size, const Matrix<T>& a, const Matrix<T>& b,
                  bool accumulate, G* d, std::int64_t d_stride) {
  if constexpr (std::is_same_v<G, Real<T>>) {
    Multiply(order, size, a, b, accumulate, d, d_stride);
  } else {
    if constexpr (std::is_same_v<T, Bf16> && std::is_same_v<G, Bf16>) {
      if (order == SumOrder::kAny && MultipliesBfloat16()) {
        return DnnlMatmul(size, a, b, accumulate, d, d_stride);
      }
    }
    constexpr std::int64_t kTileRows = 336;
    constexpr std::int64_t kTileColumns = 1024;
    thread_local Scratch scratch;
    for (std::int64_t row = 0; row < size.m; row += kTileRows) {
      for (std::int64_t column = 0; column < size.n; column += kTileColumns) {
        const ProductSize tile{std::min(kTileRows, size.m - row),
                               std::min(kTileColumns, size.n - column), size.k};
        Real<T>* const product = scratch.Get<Real<T>>(tile.m * tile.n);
        Multiply(order, tile, a.From(row, 0), b.From(0, column), /*accumulate=*/false, product,
                 tile.n);
        for (std::int64_t i = 0; i < tile.m; ++i) {
          G* const to = d + (row + i) * d_stride + column;
          const Real<T>* const from = product + i * tile.n;
          for (std::int64_t j = 0; j < tile.n; ++j) {
            if (!accumulate) to[j] = G{};
            AccumulateInto(to[j], from[j]);
          }
        }
      }
    }
  }
}

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPS_CPU_INTERNAL_PRODUCT_H_

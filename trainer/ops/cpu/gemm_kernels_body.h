// The loops of GemmKernels, compiled once per instruction set. Only gemm_kernels_*.cc include this
// file, and everything in it is local to each of them. It includes no header with inline functions:
// the linker might keep a copy of one that was compiled for a newer processor than the one that
// runs.
#ifndef CKPT_TRAINER_OPS_CPU_GEMM_KERNELS_BODY_H_
#define CKPT_TRAINER_OPS_CPU_GEMM_KERNELS_BODY_H_

#include <cstdint>

#include "trainer/ops/cpu/internal/gemm_kernels.h"

#if defined(__GNUC__) && !defined(__clang__)
#define CKPT_UNROLL _Pragma("GCC unroll 16")
#else
#define CKPT_UNROLL _Pragma("unroll 16")
#endif

namespace ckpt::trainer {
namespace {

// V: the registers of an instruction set (Reg, Real, kLanes; Load, Store, Broadcast, MultiplyAdd,
// and Interleave, which takes lanes alternately from the lower or upper halves of two registers).
// kRows · 2 registers hold the block of c.
template <typename V, int kRows>
void RunGemm(std::int64_t depth, const typename V::Real* a, const typename V::Real* b, bool resume,
             typename V::Real* c, std::int64_t c_stride) {
  // Unrolled, because a variable index would keep the sums in memory.
  typename V::Reg sums[static_cast<unsigned>(kRows)][2];
  CKPT_UNROLL
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < 2; ++j) {
      sums[i][j] = resume ? V::Load(c + i * c_stride + j * V::kLanes) : V::Broadcast(0);
    }
  }
  for (std::int64_t p = 0; p < depth; ++p) {
    const typename V::Reg b0 = V::Load(b);
    const typename V::Reg b1 = V::Load(b + V::kLanes);
    for (int i = 0; i < kRows; ++i) {
      const typename V::Reg factor = V::Broadcast(a[i]);
      sums[i][0] = V::MultiplyAdd(factor, b0, sums[i][0]);
      sums[i][1] = V::MultiplyAdd(factor, b1, sums[i][1]);
    }
    a += kRows;
    b += 2 * V::kLanes;
  }
  CKPT_UNROLL
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < 2; ++j) V::Store(sums[i][j], c + i * c_stride + j * V::kLanes);
  }
}

// Transposes a square of registers. Interleaving the first half of the rows with the second,
// log2(kLanes) times, turns rows into columns.
template <typename V>
void Transpose(typename V::Reg* rows) {
  constexpr int kHalf = V::kLanes / 2;
  typename V::Reg next[static_cast<unsigned>(V::kLanes)];
  for (int width = 1; width < V::kLanes; width *= 2) {
    CKPT_UNROLL
    for (int i = 0; i < kHalf; ++i) {
      next[2 * i] = V::InterleaveLow(rows[i], rows[i + kHalf]);
      next[2 * i + 1] = V::InterleaveHigh(rows[i], rows[i + kHalf]);
    }
    CKPT_UNROLL
    for (int i = 0; i < V::kLanes; ++i) rows[i] = next[i];
  }
}

template <typename V>
void PackLines(std::int64_t depth, const typename V::Real* from, std::int64_t stride,
               std::int64_t count, std::int64_t width, typename V::Real* to) {
  const std::int64_t last =
      width > V::kLanes ? width - V::kLanes : 0;  // first line of the last square
  const std::int64_t whole = depth - depth % V::kLanes;
  for (std::int64_t p = 0; p < whole; p += V::kLanes) {
    for (std::int64_t line = 0; line < width; line += V::kLanes) {
      const std::int64_t first = line < last ? line : last;
      typename V::Reg square[static_cast<unsigned>(V::kLanes)];
      CKPT_UNROLL
      for (int i = 0; i < V::kLanes; ++i) {
        const std::int64_t at = first + i < count ? first + i : count - 1;
        square[i] = V::Load(from + at * stride + p);
      }
      Transpose<V>(square);
      // In ascending order: elements stored beyond a narrow panel's row are overwritten by the next
      // store.
      CKPT_UNROLL
      for (int i = 0; i < V::kLanes; ++i) V::Store(square[i], to + (p + i) * width + first);
    }
  }
  for (std::int64_t p = whole; p < depth; ++p) {
    for (std::int64_t i = 0; i < count; ++i) to[p * width + i] = from[i * stride + p];
  }
}

template <typename V, int kRows>
constexpr GemmKernel<typename V::Real> MakeGemmKernel() {
  return {kRows, 2 * V::kLanes, RunGemm<V, kRows>, PackLines<V>};
}

template <typename F32, int kRowsF32, typename F64, int kRowsF64>
constexpr GemmKernels MakeGemmKernels(const char* name) {
  return {name, MakeGemmKernel<F32, kRowsF32>(), MakeGemmKernel<F64, kRowsF64>()};
}

}  // namespace
}  // namespace ckpt::trainer

#undef CKPT_UNROLL

#endif  // CKPT_TRAINER_OPS_CPU_GEMM_KERNELS_BODY_H_

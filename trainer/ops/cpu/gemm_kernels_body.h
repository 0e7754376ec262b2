// The loop of GemmKernels, compiled once per instruction set: included by gemm_kernels_*.cc and nothing else, and
// all of it local to each of them. Includes no header with inline functions, of which the linker might keep a copy that
// was compiled for a newer processor than the one that runs.
#ifndef CKPT_TRAINER_OPS_CPU_GEMM_KERNELS_BODY_H_
#define CKPT_TRAINER_OPS_CPU_GEMM_KERNELS_BODY_H_

#include <cstdint>

#include "trainer/ops/cpu/gemm_kernels.h"

namespace ckpt::trainer {
namespace {

// V: the registers of an instruction set (Reg, Real, kLanes; Load, Store, Broadcast, MultiplyAdd). kRows · 2 of them hold
// the block of c.
template <typename V, int kRows>
void RunGemm(std::int64_t depth, const typename V::Real* a, const typename V::Real* b, bool resume,
             typename V::Real* c, std::int64_t c_stride) {
  typename V::Reg sums[static_cast<unsigned>(kRows)][2];
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
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < 2; ++j) V::Store(sums[i][j], c + i * c_stride + j * V::kLanes);
  }
}

template <typename V, int kRows>
constexpr GemmKernel<typename V::Real> MakeGemmKernel() {
  return {kRows, 2 * V::kLanes, RunGemm<V, kRows>};
}

template <typename F32, int kRowsF32, typename F64, int kRowsF64>
constexpr GemmKernels MakeGemmKernels(const char* name) {
  return {name, MakeGemmKernel<F32, kRowsF32>(), MakeGemmKernel<F64, kRowsF64>()};
}

}  // namespace
}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPS_CPU_GEMM_KERNELS_BODY_H_

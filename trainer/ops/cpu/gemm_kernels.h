// The innermost loops of the fixed-order product, once per instruction set.
#ifndef CKPT_TRAINER_OPS_CPU_GEMM_KERNELS_H_
#define CKPT_TRAINER_OPS_CPU_GEMM_KERNELS_H_

#include <cstdint>

namespace ckpt::trainer {

// A block of c: `rows` × `columns` elements, each one chain of fused multiply-adds over ascending p,
//
//   c[i, j] = fma(a[p, i], b[p, j], c[i, j])   for p = 0 … depth - 1
//
// from 0, or from what c holds if `resume`. a: [depth, rows], b: [depth, columns], packed; rows of c are `c_stride`
// apart.
template <typename Real>
struct GemmKernel {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  void (*run)(std::int64_t depth, const Real* a, const Real* b, bool resume, Real* c,
              std::int64_t c_stride) = nullptr;

  // A panel from `count` lines of the source that run along p: to[p · width + i] = from[i · stride + p] for i < count.
  // Columns from `count` to `width` become something; so do kPastPanel elements behind the panel.
  void (*pack_lines)(std::int64_t depth, const Real* from, std::int64_t stride, std::int64_t count,
                     std::int64_t width, Real* to) = nullptr;
  static constexpr std::int64_t kPastPanel = 16;
};

// Every instruction set gives the same bits.
struct GemmKernels {
  const char* name = "";
  GemmKernel<float> f32;
  GemmKernel<double> f64;
};

// Null where this build has no such kernels.
const GemmKernels* Avx512GemmKernels();
const GemmKernels* Avx2GemmKernels();
const GemmKernels* PlainGemmKernels();

// The best of them that this processor runs.
const GemmKernels& BestGemmKernels();

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPS_CPU_GEMM_KERNELS_H_

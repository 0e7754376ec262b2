// The innermost loops of the fixed-order product, one version per instruction set.
#ifndef CKPT_TRAINER_OPS_CPU_INTERNAL_GEMM_KERNELS_H_
#define CKPT_TRAINER_OPS_CPU_INTERNAL_GEMM_KERNELS_H_

#include <cstdint>

namespace ckpt::trainer {

// Computes a block of c: `rows` × `columns` elements, each one chain of fused multiply-adds over
// ascending p,
//
//   c[i, j] = fma(a[p, i], b[p, j], c[i, j])   for p = 0 … depth - 1
//
// starting at 0, or at the old c if `resume`. a: [depth, rows], b: [depth, columns], both packed.
// Rows of c are `c_stride` elements apart.
template <typename Real>
struct GemmKernel {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  void (*run)(std::int64_t depth, const Real* a, const Real* b, bool resume, Real* c,
              std::int64_t c_stride) = nullptr;

  // Packs a panel from `count` lines of the source that run along p: to[p · width + i] = from[i ·
  // stride + p] for i < count. Columns from `count` to `width`, and kPastPanel elements after the
  // panel, become arbitrary.
  void (*pack_lines)(std::int64_t depth, const Real* from, std::int64_t stride, std::int64_t count,
                     std::int64_t width, Real* to) = nullptr;
  static constexpr std::int64_t kPastPanel = 16;
};

// All instruction sets give the same bits.
struct GemmKernels {
  const char* name = "";
  GemmKernel<float> f32;
  GemmKernel<double> f64;
};

// Null if this build does not have these kernels.
const GemmKernels* Avx512GemmKernels();
const GemmKernels* Avx2GemmKernels();
const GemmKernels* PlainGemmKernels();

// The best kernels that this processor can run.
const GemmKernels& BestGemmKernels();

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPS_CPU_INTERNAL_GEMM_KERNELS_H_

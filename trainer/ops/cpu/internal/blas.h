// Matrix products by the BLAS library.
#ifndef CKPT_TRAINER_OPS_CPU_INTERNAL_BLAS_H_
#define CKPT_TRAINER_OPS_CPU_INTERNAL_BLAS_H_

#include <cstdint>
#include <string>

#include "trainer/ops/cpu/internal/matrix.h"

namespace ckpt::trainer {

// c [m, n] = (or +=) a [m, k] · b [k, n], on the calling thread. Rows of c are `c_stride` elements
// apart.
//
// REQUIRES: `a` and `b` each have a stride of 1 in one dim.
void BlasGemm(const ProductSize& size, const Matrix<float>& a, const Matrix<float>& b,
              bool accumulate, float* c, std::int64_t c_stride);
void BlasGemm(const ProductSize& size, const Matrix<double>& a, const Matrix<double>& b,
              bool accumulate, double* c, std::int64_t c_stride);

// The processor family for which the BLAS chose its kernels, for reports of speed.
[[nodiscard]] std::string BlasCoreName();

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPS_CPU_INTERNAL_BLAS_H_

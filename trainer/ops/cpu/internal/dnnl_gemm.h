// Matrix products of float32 by oneDNN.
#ifndef CKPT_TRAINER_OPS_CPU_INTERNAL_DNNL_GEMM_H_
#define CKPT_TRAINER_OPS_CPU_INTERNAL_DNNL_GEMM_H_

#include <cstdint>

#include "trainer/ops/cpu/internal/matrix.h"

namespace ckpt::trainer {

// c [m, n] = (or +=) a [m, k] · b [k, n], on the calling thread. Rows of c are `c_stride` elements
// apart.
//
// REQUIRES: `a` and `b` each have a stride of 1 in one dim.
void DnnlGemm(const ProductSize& size, const Matrix<float>& a, const Matrix<float>& b,
              bool accumulate, float* c, std::int64_t c_stride);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPS_CPU_INTERNAL_DNNL_GEMM_H_

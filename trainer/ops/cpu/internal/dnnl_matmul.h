// Matrix products of bfloat16 by oneDNN.
#ifndef CKPT_TRAINER_OPS_CPU_INTERNAL_DNNL_MATMUL_H_
#define CKPT_TRAINER_OPS_CPU_INTERNAL_DNNL_MATMUL_H_

#include <cstdint>

#include "trainer/ops/cpu/internal/matrix.h"
#include "trainer/ops/cpu/internal/numeric.h"

namespace ckpt::trainer {

// Whether the processor has instructions that multiply bfloat16 (AVX512-BF16, AMX). Without them
// the library is slower than FixedOrderGemm.
[[nodiscard]] bool MultipliesBfloat16();

// c [m, n] = (or +=) a [m, k] · b [k, n], on the calling thread. Products are summed in float32, in
// any order, and rounded once. Subnormal operands and results may count as 0. Rows of c are
// `c_stride` elements apart.
//
// REQUIRES: MultipliesBfloat16(); `a` and `b` each have a stride of 1 in one dim.
void DnnlMatmul(const ProductSize& size, const Matrix<Bf16>& a, const Matrix<Bf16>& b,
                bool accumulate, float* c, std::int64_t c_stride);
void DnnlMatmul(const ProductSize& size, const Matrix<Bf16>& a, const Matrix<Bf16>& b,
                bool accumulate, Bf16* c, std::int64_t c_stride);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPS_CPU_INTERNAL_DNNL_MATMUL_H_

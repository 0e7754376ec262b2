// Matrix products whose bits depend on nothing but the row and the column they are products of.
#ifndef CKPT_TRAINER_OPS_CPU_FIXED_ORDER_GEMM_H_
#define CKPT_TRAINER_OPS_CPU_FIXED_ORDER_GEMM_H_

#include <cstdint>

#include "trainer/ops/cpu/gemm_kernels.h"
#include "trainer/ops/cpu/matrix.h"
#include "trainer/ops/cpu/numeric.h"

namespace ckpt::trainer {

// c [m, n] = (or +=) a [m, k] · b [k, n], on the calling thread. Every element is one chain of fused multiply-adds in the
// compute type over ascending k, from 0 or from what c holds: the same bits whatever the sizes, the strides and the
// processor. T: float, double, Bf16. Rows of c are `c_stride` apart.
template <typename T>
void FixedOrderGemm(const ProductSize& size, const Matrix<T>& a, const Matrix<T>& b,
                    bool accumulate, Real<T>* c, std::int64_t c_stride,
                    const GemmKernels& kernels = BestGemmKernels());

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPS_CPU_FIXED_ORDER_GEMM_H_

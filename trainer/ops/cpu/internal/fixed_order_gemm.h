// Matrix products in which the bits of an element depend only on its row and its column.
#ifndef CKPT_TRAINER_OPS_CPU_INTERNAL_FIXED_ORDER_GEMM_H_
#define CKPT_TRAINER_OPS_CPU_INTERNAL_FIXED_ORDER_GEMM_H_

#include <cstdint>

#include "trainer/ops/cpu/internal/gemm_kernels.h"
#include "trainer/ops/cpu/internal/matrix.h"
#include "trainer/ops/cpu/internal/numeric.h"

namespace ckpt::trainer {

// c [m, n] = (or +=) a [m, k] · b [k, n], on the calling thread. Every element is one chain of
// fused multiply-adds in the compute type over ascending k, which starts at 0 or at the old element
// of c. So its bits do not depend on sizes, strides or processor. T: float, double, Bf16. Rows of c
// are `c_stride` elements apart.
template <typename T>
void FixedOrderGemm(const ProductSize& size, const Matrix<T>& a, const Matrix<T>& b,
                    bool accumulate, Real<T>* c, std::int64_t c_stride,
                    const GemmKernels& kernels = BestGemmKernels());

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPS_CPU_INTERNAL_FIXED_ORDER_GEMM_H_

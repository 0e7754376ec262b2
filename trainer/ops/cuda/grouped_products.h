// Grouped products on the matrix units of Hopper GPUs, by CUTLASS.
#ifndef CKPT_TRAINER_OPS_CUDA_GROUPED_PRODUCTS_H_
#define CKPT_TRAINER_OPS_CUDA_GROUPED_PRODUCTS_H_

#include "trainer/device/cuda/cuda_queue.h"
#include "trainer/device/tensor.h"
#include "trainer/ops/gradient.h"

namespace ckpt::trainer::cuda {

// The operations of Ops with one range of rows a matrix (segments = 1), whose tensors
// GroupedProductsCover; sums are float32. The host does not read the offsets: a kernel lists the
// products of the experts on the device.
//
// `wide` [R, O], `narrow` [R, I] and `matrices` [E, O, I] are, in any role, the tensors of the
// product. True for bfloat16 operands (matrices that are gradients may be float32) whose rows and
// matrices all begin at multiples of 16 bytes, as the GPU's tile loads require.
[[nodiscard]] bool GroupedProductsCover(const Tensor& wide, const Tensor& narrow,
                                        const Tensor& matrices);

void GroupedForwardProducts(CudaQueue& queue, const Tensor& x, const Tensor& weights,
                            const Tensor& offsets, const Tensor& y);
void GroupedDataProducts(CudaQueue& queue, const Tensor& dy, const Tensor& weights,
                         const Tensor& offsets, const Tensor& dx);
void GroupedWeightProducts(CudaQueue& queue, const Tensor& dy, const Tensor& x,
                           const Tensor& offsets, const Gradient& dweights);

}  // namespace ckpt::trainer::cuda

#endif  // CKPT_TRAINER_OPS_CUDA_GROUPED_PRODUCTS_H_

// Attention without matrix units: float32 sums in one fixed order, for every shape.
#ifndef CKPT_TRAINER_OPS_CUDA_PLAIN_ATTENTION_H_
#define CKPT_TRAINER_OPS_CUDA_PLAIN_ATTENTION_H_

#include "trainer/device/cuda/cuda_queue.h"
#include "trainer/ops/ops.h"

namespace ckpt::trainer::cuda {

// What cuDNN does not compute: float32, head sizes beyond its own, and sequences that examples
// share. Tens of times slower than cuDNN.
void PlainAttention(CudaQueue& queue, const AttentionShape& shape, const Tensor& q, const Tensor& k,
                    const Tensor& v, const Tensor& o, const Tensor& lse);
void PlainAttentionBackward(CudaQueue& queue, const AttentionShape& shape, const Tensor& d_o,
                            const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& o,
                            const Tensor& lse, const Tensor& dq, const Tensor& dk,
                            const Tensor& dv);

}  // namespace ckpt::trainer::cuda

#endif  // CKPT_TRAINER_OPS_CUDA_PLAIN_ATTENTION_H_

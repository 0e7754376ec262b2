// The GPU's Ops, by cuBLASLt, cuDNN and kernels of this folder.
#ifndef CKPT_TRAINER_OPS_CUDA_CUDA_OPS_H_
#define CKPT_TRAINER_OPS_CUDA_CUDA_OPS_H_

#include <memory>

#include "core/base/result.h"
#include "trainer/ops/ops.h"
#include "trainer/ops/product_algorithms.h"

namespace ckpt::trainer {

struct CudaOpsOptions {
  // Two runs give the same bits. Otherwise the gradients of attention may differ in their last
  // bits.
  bool deterministic = false;
  // Of dense products; what they lack is left to cuBLASLt. `trial`: see cuda::Products.
  ProductAlgorithms algorithms = {};
  ProductTrial* trial = nullptr;
};

// Runs on queues of the CUDA device that is current when this is called. Compute dtypes are float32
// (computed without TF32) and bfloat16; gradients are float32 or bfloat16. No operation reads a
// device value on the host. Thread-safety: the rank's thread.
//
// Errors: kSystem (cuBLASLt or cuDNN cannot start), kUnsupported (algorithms of another GPU or
// library).
Result<std::unique_ptr<Ops>> MakeCudaOps(const CudaOpsOptions& options);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPS_CUDA_CUDA_OPS_H_

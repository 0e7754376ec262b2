// Attention by cuDNN.
#ifndef CKPT_TRAINER_OPS_CUDA_ATTENTION_PLANS_H_
#define CKPT_TRAINER_OPS_CUDA_ATTENTION_PLANS_H_

#include <memory>

#include "core/base/result.h"
#include "trainer/device/cuda/cuda_queue.h"
#include "trainer/ops/ops.h"

namespace ckpt::trainer::cuda {

// Builds a plan the first time that it sees a shape, which takes up to a second, and keeps it.
//
// Thread-safety: the rank's thread.
class AttentionPlans {
 public:
  // `deterministic`: the backward gives the same bits in every run, which costs a tenth of its
  // speed and two gigabytes of scratch memory. Errors: kSystem (cuDNN cannot start).
  static Result<std::unique_ptr<AttentionPlans>> Create(bool deterministic);
  ~AttentionPlans();
  AttentionPlans(const AttentionPlans&) = delete;
  AttentionPlans& operator=(const AttentionPlans&) = delete;

  // Whether cuDNN computes attention of this shape over operands of this dtype.
  [[nodiscard]] static bool Covers(const AttentionShape& shape, DType dtype);

  // As Ops::Attention and its backward. REQUIRES: Covers.
  void Forward(CudaQueue& queue, const AttentionShape& shape, const Tensor& q, const Tensor& k,
               const Tensor& v, const Tensor& o, const Tensor& lse);
  void Backward(CudaQueue& queue, const AttentionShape& shape, const Tensor& d_o, const Tensor& q,
                const Tensor& k, const Tensor& v, const Tensor& o, const Tensor& lse,
                const Tensor& dq, const Tensor& dk, const Tensor& dv);

 private:
  class Impl;  // keeps cuDNN's headers in one file
  explicit AttentionPlans(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace ckpt::trainer::cuda

#endif  // CKPT_TRAINER_OPS_CUDA_ATTENTION_PLANS_H_

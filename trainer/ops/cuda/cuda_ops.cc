#include "trainer/ops/cuda/cuda_ops.h"

#include <string>
#include <utility>

#include "trainer/ops/cuda/cuda_ops_impl.h"
#include "trainer/ops/cuda/plain_attention.h"

namespace ckpt::trainer {

Result<std::unique_ptr<Ops>> MakeCudaOps(const CudaOpsOptions& options) {
  CKPT_ASSIGN_OR_RETURN(std::unique_ptr<cuda::Products> products,
                        cuda::Products::Create(options.algorithms, options.trial));
  CKPT_ASSIGN_OR_RETURN(std::unique_ptr<cuda::AttentionPlans> attention,
                        cuda::AttentionPlans::Create(options.deterministic));
  return std::unique_ptr<Ops>(std::make_unique<CudaOps>(std::move(products), std::move(attention)));
}

Status CudaOps::CheckSupports(const OpsNeeds& needs) const {
  const auto is_known = [](DType dtype) {
    return dtype == DType::kFloat32 || dtype == DType::kBfloat16;
  };
  Status status;
  if (!is_known(needs.compute)) {
    status.Add(Error(ErrorKind::kUnsupported, "the GPU does not compute in this dtype")
                   .Expected("float32 or bfloat16")
                   .Actual(std::string(DTypeName(needs.compute))));
  }
  if (!is_known(needs.gradients)) {
    status.Add(Error(ErrorKind::kUnsupported, "the GPU does not add gradients in this dtype")
                   .Expected("float32 or bfloat16")
                   .Actual(std::string(DTypeName(needs.gradients)))
                   .Hint("reduction=canonical, which adds int64, needs the CPU"));
  }
  if (needs.compute == DType::kFloat32 && needs.gradients == DType::kBfloat16) {
    status.Add(Error(ErrorKind::kUnsupported,
                     "the GPU does not round gradients of a float32 model to bfloat16")
                   .Expected("gradients in float32, or bf16=true")
                   .Actual("gradients in bfloat16")
                   .Hint("set main_grads_dtype and grad_comm_dtype to fp32"));
  }
  return status;
}

void CudaOps::Attention(Queue& queue, const AttentionShape& shape, const Tensor& q, const Tensor& k,
                        const Tensor& v, const Tensor& o, const Tensor& lse) {
  RunOnCuda(queue, [&](CudaQueue& on) {
    if (cuda::AttentionPlans::Covers(shape, q.dtype)) {
      return attention_->Forward(on, shape, q, k, v, o, lse);
    }
    cuda::PlainAttention(on, shape, q, k, v, o, lse);
  });
}

void CudaOps::AttentionBackward(Queue& queue, const AttentionShape& shape, const Tensor& d_o,
                                const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& o,
                                const Tensor& lse, const Tensor& dq, const Tensor& dk,
                                const Tensor& dv) {
  RunOnCuda(queue, [&](CudaQueue& on) {
    if (cuda::AttentionPlans::Covers(shape, q.dtype)) {
      return attention_->Backward(on, shape, d_o, q, k, v, o, lse, dq, dk, dv);
    }
    cuda::PlainAttentionBackward(on, shape, d_o, q, k, v, o, lse, dq, dk, dv);
  });
}

}  // namespace ckpt::trainer

#include "trainer/backend/internal/cuda_backend.h"

namespace ckpt::trainer {

Status CheckCudaComputes(const BackendOptions& options) {
  if (options.fixed_order) {
    return Error(ErrorKind::kUnsupported, "a GPU does not compute canonical sums")
        .Hint("train with reduction=canonical on the CPU");
  }
  if (options.compute == DType::kFloat64) {
    return Error(ErrorKind::kUnsupported, "a GPU does not train in float64")
        .Expected("bf16 or float32");
  }
  return OkStatus();
}

}  // namespace ckpt::trainer

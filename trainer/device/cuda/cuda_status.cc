#include "trainer/device/cuda/cuda_status.h"

#include <string>

namespace ckpt::trainer {

Status CudaStatus(cudaError_t code, std::string_view call) {
  if (code == cudaSuccess) return OkStatus();
  return Error(ErrorKind::kSystem, "the GPU failed")
      .Expected(std::string(call) + " to succeed")
      .Actual(std::string(cudaGetErrorName(code)) + ": " + cudaGetErrorString(code));
}

}  // namespace ckpt::trainer

// Errors of the CUDA runtime as Status.
#ifndef CKPT_TRAINER_DEVICE_CUDA_CUDA_STATUS_H_
#define CKPT_TRAINER_DEVICE_CUDA_CUDA_STATUS_H_

#include <string_view>

#include <cuda_runtime_api.h>

#include "core/base/status.h"

namespace ckpt::trainer {

// OK, or a kSystem error that says which call failed and why. `call` is a literal.
[[nodiscard]] Status CudaStatus(cudaError_t code, std::string_view call);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DEVICE_CUDA_CUDA_STATUS_H_

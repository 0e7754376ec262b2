#include "trainer/backend/internal/cuda_backend.h"

#include "trainer/device/cuda/cuda_device.h"
#include "trainer/ops/cuda/cuda_ops.h"

namespace ckpt::trainer {

Status CanRunCuda(const BackendOptions& options) {
  if (NumCudaDevices() == 0) return Error(ErrorKind::kUnsupported, "there is no GPU here");
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

Result<Backend> MakeCuda(const BackendOptions& options, HostGroup& world) {
  Backend backend;
  CKPT_ASSIGN_OR_RETURN(backend.device, MakeCudaDevice(world.rank() % NumCudaDevices()));
  CKPT_ASSIGN_OR_RETURN(backend.ops, MakeCudaOps({.deterministic = options.deterministic}));
  return backend;
}

}  // namespace ckpt::trainer

#include "trainer/backend/internal/cuda_backend.h"

#include "trainer/device/cuda/cuda_device.h"
#include "trainer/ops/cuda/cuda_ops.h"

namespace ckpt::trainer {

Status CanRunCuda(const BackendOptions& options) {
  CKPT_RETURN_IF_ERROR(CheckCudaComputes(options));
  if (NumCudaDevices() > 0) return OkStatus();
  return Error(ErrorKind::kUnsupported, "there is no GPU here").Hint("--device cpu computes here");
}

Result<Backend> MakeCuda(const BackendOptions& options, HostGroup& world) {
  Backend backend;
  CKPT_ASSIGN_OR_RETURN(backend.device, MakeCudaDevice(world.rank() % NumCudaDevices()));
  CKPT_ASSIGN_OR_RETURN(backend.ops, MakeCudaOps({.deterministic = options.deterministic}));
  return backend;
}

}  // namespace ckpt::trainer

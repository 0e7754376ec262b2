#include "trainer/backend/internal/cuda_backend.h"

namespace ckpt::trainer {

Status CanRunCuda(const BackendOptions& options) {
  CKPT_RETURN_IF_ERROR(CheckCudaComputes(options));
  return Error(ErrorKind::kUnsupported, "this program was built without CUDA")
      .Hint("build it with the preset cuda, or take --device cpu");
}

Result<Backend> MakeCuda(const BackendOptions& options, HostGroup& /*world*/) {
  return CanRunCuda(options);  // an error
}

}  // namespace ckpt::trainer

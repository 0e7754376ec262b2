#include "trainer/backend/internal/cuda_backend.h"

namespace ckpt::trainer {

Status CanRunCuda(const BackendOptions& /*options*/) {
  return Error(ErrorKind::kUnsupported, "this program was built without CUDA")
      .Hint("build it with the preset cuda");
}

Result<Backend> MakeCuda(const BackendOptions& options, HostGroup& /*world*/) {
  return CanRunCuda(options);
}

}  // namespace ckpt::trainer

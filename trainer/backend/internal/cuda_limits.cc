#include <fmt/format.h>

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

Status CheckCudaRanks(GpuCollectives collectives, int ranks, bool are_processes, int gpus) {
  if (collectives == GpuCollectives::kPeer && are_processes) {
    return Error(ErrorKind::kUnsupported,
                 "gpu_collectives=peer needs ranks that read each other's memory")
        .Expected("ranks that are threads of one process")
        .Actual("ranks that are processes")
        .Hint("leave gpu_collectives out: processes communicate by NCCL");
  }
  if (collectives == GpuCollectives::kNccl && !are_processes && ranks > gpus) {
    return Error(ErrorKind::kUnsupported, "NCCL needs a GPU for each rank of one process")
        .Expected(fmt::format("{} GPUs", ranks))
        .Actual(fmt::format("{} GPUs: ranks 0 and {} would share GPU 0", gpus, gpus))
        .Hint("leave gpu_collectives out: ranks that share a GPU read each other's memory");
  }
  return OkStatus();
}

}  // namespace ckpt::trainer

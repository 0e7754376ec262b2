#include "trainer/backend/internal/cuda_backend.h"

#include <cstdint>
#include <string>
#include <utility>

#include "core/base/units.h"
#include "core/io/posix_storage.h"
#include "core/io/storage.h"
#include "trainer/comm/machine.h"
#include "trainer/device/cuda/cuda_device.h"
#include "trainer/ops/cuda/cuda_ops.h"

namespace ckpt::trainer {
namespace {

constexpr std::uint64_t kMaxAlgorithmBytes = 16 * kMiB;

Result<ProductAlgorithms> ReadAlgorithms(const std::string& path) {
  if (path.empty()) return ProductAlgorithms();
  CKPT_ASSIGN_OR_RETURN(const std::string text,
                        ReadSmallFile(PosixStorage(), path, kMaxAlgorithmBytes));
  return ParseProductAlgorithms(text, path);
}

}  // namespace

Status CanRunCuda(const BackendOptions& options) {
  CKPT_RETURN_IF_ERROR(CheckCudaComputes(options));
  if (NumCudaDevices() > 0) return OkStatus();
  return Error(ErrorKind::kUnsupported, "there is no GPU here").Hint("--device cpu computes here");
}

Result<Backend> MakeCuda(const BackendOptions& options, HostGroup& world) {
  const int gpus = NumCudaDevices();
  CKPT_RETURN_IF_ERROR(
      CheckCudaRanks(options.gpu_collectives, world.size(), world.abort_ends_processes(), gpus));
  CKPT_ASSIGN_OR_RETURN(const int place, RankOnMachine(world));
  Backend backend;
  CKPT_ASSIGN_OR_RETURN(backend.device, MakeCudaDevice(place % gpus, options.gpu_collectives));
  CKPT_ASSIGN_OR_RETURN(ProductAlgorithms algorithms, ReadAlgorithms(options.product_algorithms));
  CKPT_ASSIGN_OR_RETURN(backend.ops, MakeCudaOps({.deterministic = options.deterministic,
                                                  .algorithms = std::move(algorithms),
                                                  .trial = options.product_trial}));
  return backend;
}

}  // namespace ckpt::trainer

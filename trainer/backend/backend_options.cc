#include "trainer/backend/backend_options.h"

#include <utility>

namespace ckpt::trainer {

BackendOptions BackendOptionsOf(const TrainConfig& config, std::string device, int threads) {
  return {.name = std::move(device),
          .threads = threads,
          .fixed_order = config.reduction == Reduction::kCanonical,
          .deterministic = config.deterministic,
          .compute = config.precision.compute,
          .gpu_collectives = config.gpu_collectives,
          .product_algorithms = config.product_algorithms,
          .overlaps = config.overlaps_on_host()};
}

}  // namespace ckpt::trainer

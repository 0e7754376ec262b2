#include "formats/format.h"

#include <utility>

#include <fmt/format.h>

namespace ckpt {

Result<std::unique_ptr<CheckpointSource>> OpenAs(const Format& format, Storage& storage,
                                                 const Path& path) {
  if (format.open != nullptr) return format.open(storage, path);
  return Error(ErrorKind::kUnsupported,
               fmt::format("{} checkpoints cannot be read by this build", format.name))
      .File(path.string());
}

Result<PlannedCheckpoint> PlanWeights(const Format& format, WeightsRequest request) {
  if (format.plan_weights != nullptr) return format.plan_weights(std::move(request));
  return Error(ErrorKind::kUnsupported,
               fmt::format("{} checkpoints cannot be written by this build", format.name));
}

}  // namespace ckpt

#include "formats/format.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/quote.h"

namespace ckpt {

Result<std::unique_ptr<CheckpointSource>> OpenAs(const Format& format, Storage& storage,
                                                 const Path& path) {
  if (format.open != nullptr) return format.open(storage, path);
  return Error(ErrorKind::kUnsupported,
               fmt::format("{} checkpoints cannot be read by this build", format.name))
      .File(path.string());
}

Result<PlannedCheckpoint> PlanWeights(const Format& format, WeightsRequest request) {
  if (format.plan_weights == nullptr) {
    return Error(ErrorKind::kUnsupported,
                 fmt::format("{} checkpoints cannot be written by this build", format.name));
  }
  if (!request.generation.empty() &&
      std::ranges::find(format.generations, request.generation) == format.generations.end()) {
    return Error(ErrorKind::kUsage, fmt::format("{} has no such generation", format.name))
        .Expected(fmt::format("{}", fmt::join(format.generations, " or ")))
        .Actual(Quote(request.generation));
  }
  return format.plan_weights(std::move(request));
}

}  // namespace ckpt

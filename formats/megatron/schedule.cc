#include "formats/megatron/schedule.h"

#include <cstdint>

#include <fmt/format.h>

namespace ckpt::megatron {

Status CheckSchedule(const TrainingRun& run, const layout::Configuration& args,
                     std::string_view key) {
  const auto found = args.find("global_batch_size");
  const std::int64_t* const batch = found == args.end() ? nullptr : found->second.AsInt();
  if (batch == nullptr) {
    return Error(ErrorKind::kMissing, "args have no global_batch_size").Tensor("args");
  }
  const std::int64_t samples = run.schedule.num_steps;
  if (*batch > 0 && samples % *batch == 0 && samples / *batch == run.finished_updates()) {
    return OkStatus();
  }
  return Error(ErrorKind::kUnsupported, "the learning rate is at another step than the optimizer")
      .Tensor(key)
      .Expected(fmt::format("{} updates of {} samples", run.finished_updates(), *batch))
      .Actual(fmt::format("{} samples", samples));
}

}  // namespace ckpt::megatron

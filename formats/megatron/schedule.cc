#include "formats/megatron/schedule.h"

#include <cstdint>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "core/layout/find_value.h"

namespace ckpt::megatron {

namespace {

// The samples of every batch, as the progress says them; nothing if batches were unequal or empty.
std::optional<std::int64_t> BatchOf(const TrainingRun& run) {
  if (run.iteration <= 0 || run.consumed_samples <= 0) return std::nullopt;
  if (run.consumed_samples % run.iteration != 0) return std::nullopt;
  return run.consumed_samples / run.iteration;
}

}  // namespace

Status CheckSchedule(const TrainingRun& run, const layout::Configuration& args,
                     std::string_view key) {
  const std::int64_t samples = run.schedule.num_steps;
  const std::optional<std::int64_t> said = StoredBatch(args);
  // Of a run that counted no samples, only the optimizer says where it is.
  if (!said && samples == 0 && run.consumed_samples == 0) return OkStatus();
  const std::optional<std::int64_t> batch = said ? said : BatchOf(run);
  if (batch && *batch > 0 && samples % *batch == 0 && samples / *batch == run.finished_updates()) {
    return OkStatus();
  }
  const std::string expected =
      batch ? fmt::format("{} updates of {} samples", run.finished_updates(), *batch)
            : fmt::format("equal batches, where {} iterations consumed {} samples", run.iteration,
                          run.consumed_samples);
  return Error(ErrorKind::kUnsupported, "the learning rate is at another step than the optimizer")
      .Tensor(key)
      .Expected(expected)
      .Actual(fmt::format("{} samples", samples));
}

std::optional<std::int64_t> UpdatesOfSchedule(const TrainingRun& run,
                                              const layout::Configuration& args) {
  const std::int64_t samples = run.schedule.num_steps;
  if (run.iteration == 0 && samples == 0) return 0;  // whatever a batch is
  const std::optional<std::int64_t> batch = BatchOf(run);
  if (!batch || StoredBatch(args).value_or(*batch) != *batch) return std::nullopt;
  if (samples < 0 || samples > run.consumed_samples || samples % *batch != 0) return std::nullopt;
  return samples / *batch;
}

std::optional<std::int64_t> StoredBatch(const layout::Configuration& args) {
  return layout::FindInt(args, "global_batch_size");
}

}  // namespace ckpt::megatron

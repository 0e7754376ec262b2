#include "trainer/run/data_position.h"

#include <fmt/format.h>

#include "converters/verbs/training_state.h"

namespace ckpt::train {
namespace {

// What is known of the stored run's data, and the same about this run's.
struct Compared {
  std::string stored;
  std::string now;
};

Compared Compare(const TrainingState& state, const RunConfig& run) {
  if (state.facts.data_identity) return {*state.facts.data_identity, run.data_identity};
  // Megatron stores only this.
  const auto length = state.args.find("seq_length");
  const std::string now = fmt::format("sequences of {}", run.train.seq_length);
  if (length == state.args.end()) return {now, now};
  return {"sequences of " + layout::FormatValue(length->second), now};
}

}  // namespace

Status PlaceInData(const std::string& identity, const CheckpointSettings& settings,
                   RunConfig& run) {
  run.data_identity = identity;
  const StatePtr state = run.goes_on() && !settings.finetune ? run.stored->state() : nullptr;
  if (!state) return OkStatus();
  const Compared data = Compare(*state, run);
  if (data.stored == data.now) return OkStatus();
  if (settings.restart_data) {
    run.restarts_data = true;
    return OkStatus();
  }
  return Error(ErrorKind::kUsage,
               fmt::format("the stored run consumed its {} samples from other data or sequences: "
                           "resuming would skip or repeat some",
                           state->run.consumed_samples))
      .File(state->weights.checkpoint->path.string())
      .Expected(data.stored)
      .Actual(data.now)
      .Hint(
          "give the data, seed and seq_length of the stored run, or start these data at their "
          "first sample with restart_data=true");
}

}  // namespace ckpt::train

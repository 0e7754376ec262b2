#include "trainer/run/data_position.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "converters/verbs/training_state.h"
#include "core/base/hash.h"

namespace ckpt::train {
namespace {

constexpr std::string_view kContent = ", content ";
constexpr std::int64_t kHashedSamples = 16;
constexpr std::size_t kHashDigits = 8;

// Of samples spread over an epoch; those that cannot be read count as empty, and are an error when
// the run comes to them.
std::string ContentHash(const trainer::SequenceSource& data) {
  const std::int64_t samples = data.num_samples();
  const std::int64_t hashed = std::min(samples, kHashedSamples);
  Hasher hasher(HashAlgorithm::kXxh3);
  for (std::int64_t i = 0; i < hashed; ++i) {
    // i * (samples - 1) / (hashed - 1) without its overflow.
    const std::int64_t gaps = std::max<std::int64_t>(hashed - 1, 1);
    const std::int64_t last = samples - 1;
    const auto sequence = data.Read(last / gaps * i + last % gaps * i / gaps);
    if (!sequence.ok()) continue;
    for (const auto* numbers : {&sequence->tokens, &sequence->labels}) {
      hasher.Update(std::as_bytes(std::span(*numbers)));
    }
  }
  return hasher.Finish().substr(0, kHashDigits);
}

std::string IdentityOf(const trainer::SequenceSource& data) {
  std::string sizes = data.facts().identity;
  if (sizes.empty()) return sizes;  // unknown
  return std::move(sizes) + std::string(kContent) + ContentHash(data);
}

// What is known of the stored run's data, and of this run's.
struct Compared {
  std::string stored;
  std::string now;
};

Compared Compare(const TrainingState& state, const RunConfig& run) {
  if (state.facts.data_identity) return {*state.facts.data_identity, run.data_identity};
  // Megatron stores only this.
  const auto length = state.args.find("seq_length");
  const std::string now = fmt::format("sequences of {}", run.train.seq_length);
  if (length == state.args.end()) return {"data that the checkpoint does not name", now};
  return {"sequences of " + layout::FormatValue(length->second), now};
}

}  // namespace

bool IsSameData(std::string_view stored, std::string_view now) {
  const bool has_hash = stored.find(kContent) != std::string_view::npos;
  return stored == (has_hash ? now : now.substr(0, now.find(kContent)));
}

Status PlaceInData(const trainer::SequenceSource& data, const CheckpointSettings& settings,
                   RunConfig& run) {
  run.data_identity = IdentityOf(data);
  const StatePtr state = run.goes_on() && !settings.finetune ? run.stored->state() : nullptr;
  if (!state) return OkStatus();
  const Compared compared = Compare(*state, run);
  if (IsSameData(compared.stored, compared.now)) return OkStatus();
  if (settings.restart_data) {
    run.restarts_data = true;
    return OkStatus();
  }
  return Error(ErrorKind::kUsage,
               fmt::format("the stored run consumed its {} samples from other data or sequences: "
                           "resuming would skip or repeat some",
                           state->run.consumed_samples))
      .File(state->weights.checkpoint->path.string())
      .Expected(compared.stored)
      .Actual(compared.now)
      .Hint(
          "give the data, seed and seq_length of the stored run, or start these data at their "
          "first sample with restart_data=true");
}

}  // namespace ckpt::train

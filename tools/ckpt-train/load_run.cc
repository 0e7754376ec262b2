#include "tools/ckpt-train/load_run.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/checkpoint/manifest.h"
#include "core/checkpoint/read_manifest.h"
#include "tools/ckpt-train/load_state.h"
#include "tools/ckpt-train/stored_run.h"
#include "trainer/comm/agreement.h"

namespace ckpt::train {
namespace {

int TensorRanks(const layout::Configuration& args) {
  const auto found = args.find("tensor_model_parallel_size");
  const std::int64_t* const size = found == args.end() ? nullptr : found->second.AsInt();
  constexpr std::int64_t kMost = 1024;  // of any machine
  return size == nullptr ? 1 : static_cast<int>(std::clamp<std::int64_t>(*size, 1, kMost));
}

// This rank's share of the files: whether they are what the sidecar says, the one that was read
// with the state where that is open already. OK without a sidecar.
Status CheckShare(Storage& storage, const Path& candidate, const StatePtr& opened,
                  const trainer::Communicator& world) {
  std::optional<Manifest> sidecar;
  if (opened) {
    sidecar = opened->weights.manifest;
  } else {
    CKPT_ASSIGN_OR_RETURN(sidecar, ReadManifest(storage, candidate));
  }
  if (!sidecar) return OkStatus();
  return CheckStoredBytes(storage, candidate, *sidecar, world.rank(), world.size());
}

// The newest candidate that every rank finds intact; null if there is none. `opened` is a
// candidate's, in every process.
Result<StatePtr> OpenIntact(Storage& storage, const CheckpointSettings& settings,
                            const StatePtr& opened, trainer::Communicator& world,
                            const Notice& tell) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<Path> candidates, ListCandidates(storage, settings.load));
  Status refused;
  for (const Path& candidate : candidates) {
    const bool is_open = opened && opened->weights.checkpoint->path == candidate;
    Result<StatePtr> state = is_open ? opened : nullptr;
    // Bytes first: what is wrong with them explains whatever else is. A rank that is gone says
    // nothing about the checkpoint.
    Status found = CheckShare(storage, candidate, *state, world);
    CKPT_ASSIGN_OR_RETURN(const bool is_whole, trainer::HoldsEverywhere(world, found.ok()));
    if (is_whole) {
      if (!is_open) state = OpenStoredRun(storage, candidate, settings.finetune);
      CKPT_ASSIGN_OR_RETURN(const bool is_read, trainer::HoldsEverywhere(world, state.ok()));
      if (is_read) {
        if (!refused.ok()) tell(fmt::format("takes {} instead", candidate.string()));
        return state;
      }
      if (!state.ok()) found = std::move(state).status();
    }
    Status agreed = AgreeOn(world, found);
    tell(fmt::format("cannot go on from {}: {}", candidate.string(), agreed.ToString()));
    refused.Add(std::move(agreed).While(GoingOnFrom(candidate)));
  }
  if (!refused.ok()) return refused;
  return StatePtr();
}

}  // namespace

Result<std::optional<LoadedRun>> LoadRun(Storage& storage, const CheckpointSettings& settings,
                                         OpenedState& opened, trainer::RankTrainer& trainer,
                                         trainer::Communicator& world, const Notice& notice) {
  const Notice tell = [&](const std::string& text) {
    if (world.rank() == 0 && notice) notice(text);
  };
  CKPT_ASSIGN_OR_RETURN(const StatePtr state,
                        OpenIntact(storage, settings, opened.state(), world, tell));
  if (!state) return std::optional<LoadedRun>();
  opened.Close();  // every rank has it
  CKPT_RETURN_IF_ERROR(AgreeOn(world, settings.finetune ? LoadWeights(state->weights, trainer)
                                                        : LoadState(*state, trainer)));

  LoadedRun run = {.checkpoint = state->weights.checkpoint->path,
                   .progress = {},
                   .state_digest = state->state_digest,
                   .assets = state->weights.assets,
                   .naming = state->weights.match.layout.choices,
                   .tensor_ranks = TensorRanks(state->args)};
  if (!settings.finetune) {
    run.progress = {.iteration = state->iteration,
                    .consumed_samples = state->consumed_samples,
                    .next_loss = state->next_loss};
  }
  tell(fmt::format("loaded {} at iteration {}", run.checkpoint.string(), run.progress.iteration));
  return std::optional<LoadedRun>(std::move(run));
}

}  // namespace ckpt::train

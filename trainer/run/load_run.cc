#include "trainer/run/load_run.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "converters/verbs/weight_reader.h"
#include "core/checkpoint/index.h"
#include "core/manifest/manifest.h"
#include "core/manifest/read_manifest.h"
#include "core/training/run_format.h"
#include "formats/megatron/schedule.h"
#include "trainer/comm/agreement.h"
#include "trainer/run/internal/checked_load.h"
#include "trainer/run/internal/load_state.h"
#include "trainer/run/internal/stored_run.h"

namespace ckpt::train {
namespace {

// Compares this rank's share of the files with the manifest. OK without a manifest. The bytes of
// tensors are left to the load if the candidate could be `opened`.
Status CheckShare(Storage& storage, const Path& candidate, const Result<StatePtr>& opened,
                  const trainer::HostGroup& world) {
  std::shared_ptr<const Manifest> manifest;
  const CheckpointIndex* index = nullptr;
  if (opened.ok()) {
    manifest = (*opened)->weights.manifest;
    index = &(*opened)->weights.source().index();
  } else {
    CKPT_ASSIGN_OR_RETURN(manifest, ReadManifest(storage, candidate));
  }
  if (!manifest) return OkStatus();
  return CheckStoredBytes(storage, candidate, *manifest, index, world.rank(), world.size());
}

// Whether another candidate may be better: this one's bytes are not what was written, or cannot be
// read.
bool IsDamageOrReadError(const Status& status) {
  switch (status.kind()) {
    case ErrorKind::kTruncated:
    case ErrorKind::kMissingFile:
    case ErrorKind::kChecksum:
    case ErrorKind::kSizeMismatch:
    case ErrorKind::kIo:
      return true;
    default:
      return false;
  }
}

// The candidates that rank 0 sees, on every rank, because what each rank sees may change meanwhile.
Result<std::vector<Path>> ListForAll(Storage& storage, const Path& root,
                                     trainer::HostGroup& world) {
  constexpr char kEnd = '\0';  // never part of a path
  Result<std::vector<Path>> listed = std::vector<Path>();
  if (world.rank() == 0) listed = ListCandidates(storage, root);
  CKPT_RETURN_IF_ERROR(AgreeOn(world, listed.ok() ? OkStatus() : listed.status()));
  std::string names;
  for (const Path& candidate : *listed) names += candidate.string() + kEnd;
  CKPT_ASSIGN_OR_RETURN(const std::vector<std::string> all_names, ExchangeTexts(world, names));
  std::vector<Path> candidates;
  std::istringstream of_rank_0(all_names.front());
  for (std::string name; std::getline(of_rank_0, name, kEnd);) candidates.emplace_back(name);
  return candidates;
}

// What distinguishes one stored state from another.
std::string IdentityOf(const TrainingState& state) {
  return fmt::format("iteration {}, {} samples, state digest {}, manifest {}", state.run.iteration,
                     state.run.consumed_samples, state.facts.state_digest.value_or("none"),
                     ManifestIdentity(state.weights.manifest));
}

// What a checkpoint of another program leaves open, if anything.
std::string UnknownBatch(const TrainingState& state, std::int64_t batch_now) {
  if (megatron::StoredBatch(state.args)) return "";
  return fmt::format(
      "{} does not say its global_batch_size: the run resumes behind {} updates of the optimizer "
      "and "
      "{} samples, with its own settings and batches of {}",
      state.weights.checkpoint->path.string(), state.run.finished_updates(),
      state.run.consumed_samples, batch_now);
}

struct Found {
  StatePtr state;             // null: there is no checkpoint
  std::vector<Path> refused;  // newer ones
};

using Load = std::function<Status(const TrainingState&)>;

// Loads the newest candidate that every rank finds intact, both before it reads the tensors and
// when it has read them. What a damaged candidate has left in the trainer is overwritten. An error
// that every candidate would give ends the load: a run must not resume an older checkpoint because
// there were no file handles left. `opened` is the same candidate's in every process.
Result<Found> LoadIntact(Storage& storage, const CheckpointSettings& settings,
                         const StatePtr& opened, const Load& load, trainer::HostGroup& world,
                         const Notice& tell) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<Path> candidates,
                        ListForAll(storage, settings.load, world));
  const LoadedPart part = settings.finetune ? LoadedPart::kWeights : LoadedPart::kRun;
  Found result;
  Status refused;
  for (const Path& candidate : candidates) {
    const bool is_open = opened && opened->weights.checkpoint->path == candidate;
    const Result<StatePtr> state = is_open ? opened : OpenStoredRun(storage, candidate, part);
    // Bytes first, because damaged bytes explain all other errors. What met them when it read a
    // tensor names that tensor, too. An error that a rank is gone says nothing about the
    // checkpoint.
    const bool met_damage = !state.ok() && state.status().kind() == ErrorKind::kChecksum;
    Status found = met_damage ? state.status() : CheckShare(storage, candidate, state, world);
    CKPT_ASSIGN_OR_RETURN(bool holds, trainer::HoldsEverywhere(world, found.ok()));
    if (holds) {
      if (!state.ok()) found = state.status();
      CKPT_ASSIGN_OR_RETURN(holds, trainer::HoldsEverywhere(world, found.ok()));
    }
    bool is_its_own = found.ok() || !IsOfSystem(found.kind());
    if (holds) {
      // All ranks must train on the same state.
      CKPT_RETURN_IF_ERROR(
          AgreeOnText(world, IdentityOf(**state), "checkpoint under " + candidate.string()));
      const auto load_own = [&] { return load(**state); };
      found = LoadChecked(*(*state)->weights.checkpoint, load_own, world);
      CKPT_ASSIGN_OR_RETURN(holds, trainer::HoldsEverywhere(world, found.ok()));
      if (holds) {
        if (!refused.ok()) tell(fmt::format("takes {} instead", candidate.string()));
        result.state = *state;
        return result;
      }
      is_its_own = found.ok() || IsDamageOrReadError(found);
    }
    CKPT_ASSIGN_OR_RETURN(const bool may_pass, trainer::HoldsEverywhere(world, is_its_own));
    Status agreed = AgreeOn(world, found);
    if (!may_pass) return agreed;
    tell(fmt::format("cannot resume {}: {}", candidate.string(), trainer::InOneLine(agreed)));
    refused.Add(std::move(agreed).While(GoingOnFrom(candidate)));
    result.refused.push_back(candidate);
  }
  if (!refused.ok()) return refused;
  return result;
}

// What a run does although its checkpoint does not say it, in one line.
std::string DescribeAssumption(const Problem& assumed) {
  std::string line = assumed.file + ": ";
  if (!assumed.tensor.empty()) line += assumed.tensor + ": ";
  line += assumed.message;
  if (!assumed.expected.empty()) {
    line += fmt::format(": expected {}, found {}", assumed.expected, assumed.actual);
  }
  const bool is_weights = assumed.hint == kTakeWeightsAlone;
  return fmt::format(
      "{}; {}", line,
      is_weights ? "--set finetune=true takes the weights alone" : std::string_view(assumed.hint));
}

}  // namespace

Result<std::optional<LoadedRun>> LoadRun(Storage& storage, const CheckpointSettings& settings,
                                         OpenedRun& opened, trainer::RankTrainer& trainer,
                                         trainer::HostGroup& world, const LoadVoice& voice) {
  const Notice tell = [&](const std::string& text) {
    if (world.rank() == 0 && voice.notice) voice.notice(text);
  };
  const Load load = [&](const TrainingState& state) {
    if (!settings.finetune) return LoadState(state, trainer, &voice.progress);
    return LoadWeights(state.weights, kLoadBudgetBytes, trainer,
                       {.notice = tell, .progress = voice.progress});
  };
  CKPT_ASSIGN_OR_RETURN(const Found found,
                        LoadIntact(storage, settings, opened.state(), load, world, tell));
  const StatePtr& state = found.state;
  if (!state) return std::optional<LoadedRun>();
  opened.Close();  // every rank has its own pointer now

  LoadedRun run = {.checkpoint = state->weights.checkpoint->path,
                   .refused = found.refused,
                   .progress = {},
                   .state_digest = state->facts.state_digest,
                   .assets = state->weights.assets,
                   .naming = state->weights.match.layout.choices,
                   .tensor_ranks = state->run.tensor_ranks};
  if (!settings.finetune) {
    run.progress = {.iteration = state->run.iteration,
                    .consumed_samples = state->run.consumed_samples,
                    .next_loss = state->facts.next_loss};
    const std::string unknown = UnknownBatch(*state, trainer.config().global_batch_size);
    if (!unknown.empty()) tell(unknown);
    for (const Problem& warning : state->warnings) {
      tell(fmt::format("{}: {}; here lr={}", warning.file, warning.message,
                       trainer.config().schedule.max_lr));
    }
    for (const Problem& assumed : state->assumptions) {
      tell(DescribeAssumption(assumed));
    }
  }
  if (run.state_digest && !state->weights.manifest) {
    tell(fmt::format("{} has no {}, so its bytes were not checked; --prove checks them",
                     run.checkpoint.string(), kManifestName));
  }
  if (state->weights.source().index().ranks_saved_alone()) {
    tell(
        fmt::format("{}: ranks saved alone, and each entry is taken from the first that has it; "
                    "ckpt-inspect verify compares their copies",
                    run.checkpoint.string()));
  }
  tell(fmt::format("loaded {} at iteration {}", run.checkpoint.string(), run.progress.iteration));
  return std::optional<LoadedRun>(std::move(run));
}

}  // namespace ckpt::train

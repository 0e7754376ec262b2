#include "tools/ckpt-train/run_checkpoints.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "converters/config/run_settings.h"
#include "converters/verbs/save_training_state.h"
#include "converters/verbs/side_files.h"
#include "converters/verbs/training_state.h"
#include "core/base/hash.h"
#include "core/checkpoint/replaceable.h"
#include "formats/fsdp_dtensor/writer.h"
#include "formats/megatron_root.h"
#include "formats/safetensors/sharded_index.h"
#include "tools/ckpt-train/hf_export.h"
#include "tools/ckpt-train/load_state.h"
#include "tools/ckpt-train/running_state.h"
#include "tools/ckpt-train/stored_run.h"
#include "trainer/checkpoint/checkpoint_writer.h"
#include "trainer/checkpoint/staging.h"
#include "trainer/checkpoint/state_map.h"
#include "trainer/comm/agreement.h"
#include "trainer/model/model_config.h"

namespace ckpt::train {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::string_view kFsdpFormat = "fsdp_dtensor";
constexpr std::string_view kHfFormat = "hf";

// Settings that say what one invocation does, and nothing about the run it goes on with.
constexpr std::array<std::string_view, 8> kOfOneInvocation = {
    "save", "load", "exit_interval", "init", "finetune", "prove", "metrics", "tensorboard_dir"};

int TensorRanks(const layout::Configuration& args) {
  const auto found = args.find("tensor_model_parallel_size");
  const std::int64_t* const size = found == args.end() ? nullptr : found->second.AsInt();
  constexpr std::int64_t kMost = 1024;  // of any machine
  return size == nullptr ? 1 : static_cast<int>(std::clamp<std::int64_t>(*size, 1, kMost));
}

// Those of the settings that describe the model.
layout::Configuration OfTheModel(const layout::Configuration& settings) {
  trainer::SettingsReader reader(settings);
  trainer::ReadModelConfig(reader);
  layout::Configuration model;
  for (const auto& [name, value] : reader.effective()) {
    if (const auto given = settings.find(name); given != settings.end()) model.insert(*given);
  }
  return model;
}

std::string GoingOnFrom(const Path& checkpoint) { return "going on from " + checkpoint.string(); }

class RunCheckpointsImpl final : public RunCheckpoints {
 public:
  RunCheckpointsImpl(Storage& storage, CheckpointSettings settings, const RunConfig& run,
                     trainer::RankTrainer& trainer, trainer::Communicator& world, Notice notice)
      : storage_(storage),
        settings_(std::move(settings)),
        run_(run),
        trainer_(trainer),
        world_(world),
        notice_(std::move(notice)),
        writer_(storage, world) {
    if (run.init_from) assets_ = *run.init_from;
    for (const auto& [choice, value] : settings_.naming) naming_[choice] = value;
  }

  Result<std::optional<RunProgress>> Load() override;
  Status Save(const RunProgress& progress) override;
  Status Poll() override;
  Status Finish() override;
  Result<std::string> StateDigest(const RunProgress& progress) override;

 private:
  struct UnderWay {
    std::int64_t iteration = 0;
    Clock::time_point start;
    Clock::time_point started;  // from here on, training may go on
    Path assets;                // where it will have the model's side files
  };

  void Tell(const std::string& text) const {
    if (world_.rank() == 0 && notice_) notice_(text);
  }
  Result<std::optional<TrainingState>> OpenNewest();
  Status Prove(const TrainingState& state, const RunProgress& progress);
  // This rank's part of the state, copied.
  Status Stage();
  Result<std::string> DigestStaged(const RunProgress& progress);
  [[nodiscard]] RunningState Staged() const;
  Result<std::vector<WriteCopy>> SideFiles() const;
  // What follows a call of the writer that gave `status`.
  Status Conclude(Status status);

  Storage& storage_;
  const CheckpointSettings settings_;
  const RunConfig& run_;
  trainer::RankTrainer& trainer_;
  trainer::Communicator& world_;
  const Notice notice_;
  Path assets_;  // of the model: its config.json and tokenizer; empty: none
  // Of the parameters: as asked for, else as in the checkpoint that was loaded.
  layout::Choices naming_ = {{"transformer_impl", "transformer_engine"},
                             {"expert_names", "grouped"}};
  int tensor_ranks_ = 1;  // of Megatron, if it goes on with the run as before
  std::optional<trainer::Staging> staging_;
  std::optional<SavedTensors> tensors_;  // from the first save on
  std::optional<UnderWay> under_way_;
  trainer::CheckpointWriter writer_;  // last: what it writes is above
};

// The newest candidate that every rank finds intact; says why it is not a newer one.
Result<std::optional<TrainingState>> RunCheckpointsImpl::OpenNewest() {
  CKPT_ASSIGN_OR_RETURN(const std::vector<Path> candidates,
                        ListCandidates(storage_, settings_.load));
  Status refused;
  for (const Path& candidate : candidates) {
    // Bytes first: what is wrong with them explains whatever else is. A rank that is gone says nothing
    // about the checkpoint.
    Status found = CheckStoredBytes(storage_, candidate, world_.rank(), world_.size());
    CKPT_ASSIGN_OR_RETURN(const bool is_whole, trainer::HoldsEverywhere(world_, found.ok()));
    if (is_whole) {
      Result<TrainingState> state = OpenStoredRun(storage_, candidate, settings_.finetune);
      CKPT_ASSIGN_OR_RETURN(const bool is_read, trainer::HoldsEverywhere(world_, state.ok()));
      if (is_read) {
        if (!refused.ok()) Tell(fmt::format("takes {} instead", candidate.string()));
        return std::optional<TrainingState>(std::move(state).value());
      }
      if (!state.ok()) found = std::move(state).status();
    }
    Status agreed = AgreeOn(world_, found);
    Tell(fmt::format("cannot go on from {}: {}", candidate.string(), agreed.ToString()));
    refused.Add(std::move(agreed).While(GoingOnFrom(candidate)));
  }
  if (!refused.ok()) return refused;
  return std::optional<TrainingState>();
}

Result<std::optional<RunProgress>> RunCheckpointsImpl::Load() {
  if (settings_.load.empty()) return std::optional<RunProgress>();
  CKPT_ASSIGN_OR_RETURN(const std::optional<TrainingState> state, OpenNewest());
  if (!state) return std::optional<RunProgress>();
  if (!state->weights.assets.empty()) assets_ = state->weights.assets;
  for (auto& [choice, value] : naming_) {
    const auto stored = state->weights.match.layout.choices.find(choice);
    const bool keeps =
        stored != state->weights.match.layout.choices.end() && !settings_.naming.contains(choice);
    if (keeps) value = stored->second;
  }
  tensor_ranks_ = TensorRanks(state->args);
  CKPT_RETURN_IF_ERROR(AgreeOn(world_, LoadState(*state, trainer_)));
  RunProgress progress;
  if (!settings_.finetune) {
    progress = {.iteration = state->iteration,
                .consumed_samples = state->consumed_samples,
                .next_loss = state->next_loss};
  }
  Tell(fmt::format("loaded {} at iteration {}", state->weights.checkpoint->path.string(),
                   progress.iteration));
  if (settings_.prove) CKPT_RETURN_IF_ERROR(Prove(*state, progress));
  return std::optional<RunProgress>(progress);
}

Status RunCheckpointsImpl::Prove(const TrainingState& state, const RunProgress& progress) {
  const std::string file = state.weights.checkpoint->path.string();
  if (!state.state_digest) {
    return Error(ErrorKind::kMissing, "the checkpoint has no digest to prove itself with")
        .File(file)
        .Hint("only ckpt-train stores one; leave --prove out");
  }
  CKPT_ASSIGN_OR_RETURN(const std::string digest, StateDigest(progress));
  if (digest != *state.state_digest) {
    return Error(ErrorKind::kValueMismatch, "what was loaded is not what was saved")
        .File(file)
        .Expected("state digest " + *state.state_digest)
        .Actual("state digest " + digest);
  }
  Tell(fmt::format("proved: the state digest is {}", digest));
  return OkStatus();
}

Status RunCheckpointsImpl::Stage() {
  if (!staging_) {
    const std::vector<MemoryTensor> run_tensors =
        fsdp_dtensor::RunTensors({.seed = run_.train.seed, .tensor_ranks = tensor_ranks_});
    CKPT_ASSIGN_OR_RETURN(const trainer::StateMap map, trainer::MapState(run_.train, run_tensors));
    CKPT_ASSIGN_OR_RETURN(staging_, trainer::Staging::Create(map, world_.rank(), run_tensors));
  }
  return staging_->Fill(trainer_);
}

Result<std::string> RunCheckpointsImpl::DigestStaged(const RunProgress& progress) {
  const Hash128 mine = staging_->SumRows();
  std::vector<Hash128> all(static_cast<std::size_t>(world_.size()));
  CKPT_RETURN_IF_ERROR(
      world_.Exchange(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all))));
  Hash128 sum;
  for (const Hash128& of_rank : all) sum = sum + of_rank;
  const std::array<std::uint64_t, 5> whole = {
      sum.high, sum.low, static_cast<std::uint64_t>(progress.iteration),
      static_cast<std::uint64_t>(progress.consumed_samples),
      static_cast<std::uint64_t>(trainer_.optimizer().steps())};
  return HashHex(HashAlgorithm::kXxh3, std::as_bytes(std::span(whole)));
}

RunningState RunCheckpointsImpl::Staged() const {
  RunningState state = {.source = staging_->source(),
                        .weights = std::string(trainer::kWeightsPart),
                        .moments = {},
                        .moment_names = MomentNames(run_.train.optimizer),
                        .run = std::string(trainer::kRunPart)};
  for (std::size_t m = 0; m < state.moment_names.size(); ++m) {
    state.moments.push_back(trainer::MomentPart(static_cast<int>(m)));
  }
  return state;
}

Result<std::vector<WriteCopy>> RunCheckpointsImpl::SideFiles() const {
  std::vector<WriteCopy> copies;
  if (assets_.empty()) return copies;
  CKPT_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListSideFiles(storage_, assets_));
  for (const std::string& name : names) {
    if (name != safetensors::kIndexFileName)
      copies.push_back({.from = assets_ / name, .name = name});
  }
  return copies;
}

Status RunCheckpointsImpl::Save(const RunProgress& progress) {
  CKPT_RETURN_IF_ERROR(Finish());
  const Clock::time_point start = Clock::now();
  CKPT_RETURN_IF_ERROR(AgreeOn(world_, Stage()));
  CKPT_ASSIGN_OR_RETURN(const std::string digest, DigestStaged(progress));
  CKPT_ASSIGN_OR_RETURN(fsdp_dtensor::RunState run,
                        DescribeRun(run_, progress, trainer_.optimizer().steps(), digest, naming_));
  run.tensor_ranks = tensor_ranks_;
  CKPT_ASSIGN_OR_RETURN(const std::vector<WriteCopy> side_files, SideFiles());
  if (!tensors_) {
    const layout::Configuration args(run.args.begin(), run.args.end());
    CKPT_ASSIGN_OR_RETURN(tensors_, PlanSavedTensors(Staged(), args, naming_));
  }
  CKPT_ASSIGN_OR_RETURN(TrainingSave save, PlanTrainingSave(*tensors_, run, side_files));

  const std::int64_t iteration = progress.iteration;
  const Path target = settings_.save / IterationName(iteration);
  const bool to_hf = settings_.save_format == kHfFormat;
  trainer::WriteJob job = {
      .plan = std::move(save.plan),
      .writers = std::move(save.writers),
      .source = staging_->source(),
      .target = to_hf ? WeightsToExport(target) : target,
      .staging = {.if_target_exists = StagedDirectory::IfTargetExists::kReplace,
                  .may_replace = &CheckReplaceable},
      .tool = "ckptkit " CKPT_VERSION,
      .published = [this, target, iteration, to_hf]() -> Status {
        if (to_hf) CKPT_RETURN_IF_ERROR(ExportToHf(storage_, target));
        CKPT_RETURN_IF_ERROR(PointTrackerTo(storage_, settings_.save, iteration));
        if (settings_.keep_checkpoints == 0) return OkStatus();
        return RemoveOldIterations(storage_, settings_.save, iteration, settings_.keep_checkpoints);
      }};
  CKPT_RETURN_IF_ERROR(writer_.Start(std::move(job)));
  under_way_ = {.iteration = iteration,
                .start = start,
                .started = Clock::now(),
                .assets = to_hf ? target : target / fsdp_dtensor::kAssetsDirectory};
  return settings_.async_save ? OkStatus() : Finish();
}

Status RunCheckpointsImpl::Conclude(Status status) {
  if (writer_.busy() || !under_way_) return status;
  if (status.ok()) {
    const std::chrono::duration<double> whole = Clock::now() - under_way_->start;
    const std::chrono::duration<double> copying = under_way_->started - under_way_->start;
    Tell(fmt::format("saved iteration {} in {:.1f} s", under_way_->iteration, whole.count()) +
         (settings_.async_save ? fmt::format(", of which training waited {:.3f} s", copying.count())
                               : std::string()));
    // Those of the checkpoint that was loaded may have gone with it.
    if (!assets_.empty()) assets_ = under_way_->assets;
  }
  under_way_.reset();
  return status;
}

Status RunCheckpointsImpl::Poll() { return Conclude(writer_.Poll()); }

Status RunCheckpointsImpl::Finish() { return Conclude(writer_.Finish()); }

Result<std::string> RunCheckpointsImpl::StateDigest(const RunProgress& progress) {
  CKPT_RETURN_IF_ERROR(Finish());  // the staging memory is in use until then
  CKPT_RETURN_IF_ERROR(AgreeOn(world_, Stage()));
  return DigestStaged(progress);
}

}  // namespace

CheckpointSettings ReadCheckpointSettings(trainer::SettingsReader& reader) {
  CheckpointSettings settings;
  settings.save = reader.Text("save", "");
  settings.load = reader.Text("load", "");
  settings.save_format = reader.Word<std::string>(
      "save_format",
      {{kFsdpFormat, std::string(kFsdpFormat)}, {kHfFormat, std::string(kHfFormat)}});
  settings.save_interval = reader.Int("save_interval", 0);
  settings.async_save = reader.Flag("async_save", false);
  settings.keep_checkpoints = reader.Int("keep_checkpoints", 0);
  for (const char* choice : {"transformer_impl", "expert_names"}) {
    const std::string value = reader.Text(choice, "");
    if (!value.empty()) settings.naming[choice] = value;
  }
  settings.finetune = reader.Flag("finetune", false);
  settings.save_proof = reader.Flag("save_proof", true);
  settings.prove = reader.Flag("prove", false);
  if (settings.prove && settings.finetune) {
    reader.Refuse("prove", "needs the whole state, and finetune takes the weights only");
  }
  return settings;
}

Result<std::optional<layout::Configuration>> StoredSettings(Storage& storage,
                                                            const CheckpointSettings& settings) {
  if (settings.load.empty()) return std::optional<layout::Configuration>();
  CKPT_ASSIGN_OR_RETURN(const std::vector<Path> candidates, ListCandidates(storage, settings.load));
  Status refused;
  for (const Path& candidate : candidates) {
    Result<TrainingState> state = OpenStoredRun(storage, candidate, settings.finetune);
    if (!state.ok()) {
      refused.Add(std::move(state).status().While(GoingOnFrom(candidate)));
      continue;
    }
    CKPT_ASSIGN_OR_RETURN(layout::Configuration stored, RunSettings(state->args));
    if (settings.finetune) return std::optional<layout::Configuration>(OfTheModel(stored));
    for (const std::string_view name : kOfOneInvocation) stored.erase(std::string(name));
    return std::optional<layout::Configuration>(std::move(stored));
  }
  if (!refused.ok()) return refused;
  return std::optional<layout::Configuration>();
}

Result<std::unique_ptr<RunCheckpoints>> RunCheckpoints::Create(
    Storage& storage, CheckpointSettings settings, const RunConfig& run,
    trainer::RankTrainer& trainer, trainer::Communicator& world, Notice notice) {
  return std::unique_ptr<RunCheckpoints>(std::make_unique<RunCheckpointsImpl>(
      storage, std::move(settings), run, trainer, world, std::move(notice)));
}

}  // namespace ckpt::train

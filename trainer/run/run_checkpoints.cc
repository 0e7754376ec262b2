#include "trainer/run/run_checkpoints.h"

#include <array>
#include <cstddef>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "converters/verbs/model_source.h"
#include "converters/verbs/target_space.h"
#include "core/base/hash.h"
#include "core/io/disk_space.h"
#include "core/io/staging_name.h"
#include "core/manifest/replaceable.h"
#include "formats/megatron/root.h"
#include "formats/registry/registry.h"
#include "formats/registry/stored_run.h"
#include "trainer/checkpoint/background_work.h"
#include "trainer/checkpoint/model_facts.h"
#include "trainer/checkpoint/state_map.h"
#include "trainer/comm/agreement.h"
#include "trainer/comm/exchange_values.h"
#include "trainer/run/internal/describe_run.h"
#include "trainer/run/internal/published_model.h"

namespace ckpt::train {
namespace {

// What `format` stores of a run beside its state.
std::vector<MemoryTensor> RunTensorsOf(const Format& format, const RunConfig& run,
                                       int tensor_ranks) {
  const RunFormat* const of_run = FormOfRun(format).run;
  if (of_run == nullptr || of_run->run_tensors == nullptr) return {};
  return of_run->run_tensors({.seed = run.train.seed, .tensor_ranks = tensor_ranks});
}

// Adds the time of a scope to a sum.
class Stopwatch {
 public:
  explicit Stopwatch(std::chrono::duration<double>& sum) : sum_(sum) {}
  ~Stopwatch() { sum_ += std::chrono::steady_clock::now() - start_; }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  std::chrono::duration<double>& sum_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Layers or experts of which only some are frozen have no whole state in a format that stacks them.
// If that is what `target` lacks, says where else the run can be saved.
Status NameUsualFormat(Status failure, const StateInMemory& state,
                       const layout::Configuration& facts, SaveTarget target) {
  if (failure.kind() != ErrorKind::kMissing) return failure;
  target.format = &UsualRunFormat();
  target.forms.clear();
  if (!PlanSavedTensors(state, facts, std::move(target)).ok()) return failure;
  return std::move(failure).Hint(fmt::format(
      "set save_format={}, which stores what is frozen by itself", UsualRunFormat().name));
}

}  // namespace

Result<std::vector<std::uint64_t>> StagedBytes(const RunConfig& run,
                                               const CheckpointSettings& settings) {
  CKPT_ASSIGN_OR_RETURN(
      trainer::StateMap map,
      trainer::MapState(run.train, RunTensorsOf(*settings.save_format, run, /*tensor_ranks=*/1)));
  return std::move(map.staged_bytes);
}

RunCheckpoints::RunCheckpoints(Storage& storage, CheckpointSettings settings, const RunConfig& run,
                               trainer::RankTrainer& trainer, trainer::HostGroup& world,
                               int threads, RunVoice voice)
    : storage_(storage),
      settings_(std::move(settings)),
      run_(run),
      trainer_(trainer),
      world_(world),
      threads_(settings_.async_save ? 1 : threads),
      voice_(std::move(voice)),
      // The last is of layers that no run of the trainer has; conversions name it all the same.
      naming_({{"transformer_impl", "transformer_engine"},
               {"expert_names", "grouped"},
               {"further_names", "transformer_layer"}}),
      format_(*settings_.save_format),
      run_format_(FormOfRun(format_).run),
      writer_(storage, world) {
  if (run.init_from) assets_ = *run.init_from;
  for (const auto& [choice, value] : settings_.naming) naming_[choice] = value;
}

void RunCheckpoints::GoOnFrom(const LoadedRun& loaded) {
  if (!loaded.assets.empty()) assets_ = loaded.assets;
  for (auto& [choice, value] : naming_) {
    const auto stored = loaded.naming.find(choice);
    const bool keeps = stored != loaded.naming.end() && !settings_.naming.contains(choice);
    if (keeps) value = stored->second;
  }
  tensor_ranks_ = loaded.tensor_ranks;
  if (!settings_.finetune) whole_ = loaded.checkpoint;
  for (const Path& refused : loaded.refused) {
    const std::optional<std::int64_t> iteration =
        megatron::IterationOf(refused.filename().string());
    if (iteration) damaged_.insert(*iteration);
  }
}

Status RunCheckpoints::Prove(const LoadedRun& loaded) {
  const std::string file = loaded.checkpoint.string();
  if (!loaded.state_digest) {
    return Error(ErrorKind::kMissing, "the checkpoint has no state digest to compare with")
        .File(file)
        .Hint("only ckpt-train stores one: run without --prove");
  }
  CKPT_ASSIGN_OR_RETURN(const std::string digest, StateDigest(loaded.progress));
  if (digest != *loaded.state_digest) {
    return Error(ErrorKind::kValueMismatch, "the loaded state differs from the saved state")
        .File(file)
        .Expected("state digest " + *loaded.state_digest)
        .Actual("state digest " + digest);
  }
  Tell(fmt::format("proved: the state digest is {}", digest));
  return OkStatus();
}

void RunCheckpoints::Tell(const std::string& text) const {
  if (world_.rank() == 0 && voice_.say) voice_.say(text);
}

Status RunCheckpoints::AllocateStaging() {
  if (staging_) return OkStatus();
  const std::vector<MemoryTensor> run_tensors = RunTensorsOf(format_, run_, tensor_ranks_);
  CKPT_ASSIGN_OR_RETURN(const trainer::StateMap map, trainer::MapState(run_.train, run_tensors));
  CKPT_ASSIGN_OR_RETURN(
      staging_, trainer::Staging::Create(map, world_.rank(), run_tensors, trainer_.device()));
  return OkStatus();
}

Status RunCheckpoints::Stage() {
  CKPT_RETURN_IF_ERROR(AllocateStaging());
  return staging_->Fill(trainer_);
}

Status RunCheckpoints::PlanFirstSave(const RunProgress& start, std::int64_t last_step) {
  CKPT_RETURN_IF_ERROR(AllocateStaging());
  CKPT_ASSIGN_OR_RETURN(const TrainingSave save, Plan(Taken()));
  return world_.rank() == 0 ? CheckDisk(save.plan.write, start, last_step) : OkStatus();
}

Result<SavesAhead> RunCheckpoints::LookAhead(const WritePlan& plan, const RunProgress& start,
                                             std::int64_t last_step) const {
  SavesAhead ahead;
  ahead.saves = CountSaves(start.iteration, last_step, settings_.save_interval);
  ahead.keep = settings_.keep_checkpoints;
  CKPT_ASSIGN_OR_RETURN(const std::vector<ManifestFile> files, PlannedFiles(storage_, plan));
  ahead.checkpoint_bytes = BytesWithParity(files, /*parity_group=*/0);
  if (ahead.keep == 0) return ahead;
  CKPT_ASSIGN_OR_RETURN(const std::vector<std::int64_t> there,
                        megatron::ListIterations(storage_, settings_.save));
  for (const std::int64_t iteration : there) {
    if (damaged_.contains(iteration)) continue;
    ahead.old_bytes.push_back(AllocatedBytes(settings_.save / megatron::IterationName(iteration)));
  }
  return ahead;
}

Status RunCheckpoints::CheckDisk(const WritePlan& plan, const RunProgress& start,
                                 std::int64_t last_step) {
  CKPT_ASSIGN_OR_RETURN(const SavesAhead ahead, LookAhead(plan, start, last_step));
  save_bytes_ = BytesAtSave(ahead, 1);
  const std::optional<std::uint64_t> free_bytes = FreeBytes(settings_.save);
  if (!free_bytes) return OkStatus();
  CKPT_RETURN_IF_ERROR(CheckRoomForSaves(settings_.save, ahead, *free_bytes));
  const std::int64_t fit = SavesThatFit(ahead, *free_bytes);
  if (fit < ahead.saves) {
    Tell(
        fmt::format("the disk has room for {} of the {} checkpoints to come: keep_checkpoints "
                    "removes old ones as new ones come",
                    fit, ahead.saves));
  }
  return OkStatus();
}

Status RunCheckpoints::Prepare(const RunProgress& start, std::int64_t last_step) {
  Status planned = AgreeOn(world_, PlanFirstSave(start, last_step));
  return planned.ok() ? std::move(planned)
                      : std::move(planned).While("planning the first checkpoint");
}

Result<Hash128> RunCheckpoints::SumStaged() {
  CKPT_RETURN_IF_ERROR(trainer_.AwaitReads());
  return staging_->SumRows(threads_);
}

Result<std::string> RunCheckpoints::DigestOf(const Hash128& mine, const RunProgress& progress,
                                             std::int64_t updates) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<Hash128> all, trainer::ExchangeValues(world_, mine));
  Hash128 sum;
  for (const Hash128& of_rank : all) sum = sum + of_rank;
  const std::array<std::uint64_t, 5> whole = {
      sum.high, sum.low, static_cast<std::uint64_t>(progress.iteration),
      static_cast<std::uint64_t>(progress.consumed_samples), static_cast<std::uint64_t>(updates)};
  return HashHex(HashAlgorithm::kXxh3, std::as_bytes(std::span(whole)));
}

StateInMemory RunCheckpoints::Staged() const {
  StateInMemory state = {.source = staging_->source(),
                         .weights = std::string(trainer::kWeightsPart),
                         .moments = {},
                         .moment_names = MomentNames(run_.train.optimizer),
                         .run = std::string(trainer::kRunPart),
                         .decayed = DecayedParameters(run_.train)};
  for (std::size_t m = 0; m < state.moment_names.size(); ++m) {
    state.moments.push_back(trainer::MomentPart(static_cast<int>(m)));
  }
  return state;
}

// A repository's names are those of the published model, whatever the trainer would call it.
Result<SavedTensors> RunCheckpoints::PlanTensors(const TrainingRun& run) const {
  const trainer::ModelConfig& model = run_.train.model;
  layout::Configuration facts;
  if (run_format_ != nullptr) {
    facts = trainer::ModelFacts(model);
  } else {
    CKPT_ASSIGN_OR_RETURN(facts, ReadPublishedConfig(storage_, assets_, model.padded_vocab_size));
  }
  DescribeForm({run.args.begin(), run.args.end()}, facts);
  const SaveTarget target = {.format = &format_,
                             .choices = run_format_ != nullptr ? naming_ : layout::Choices(),
                             .forms = settings_.forms};
  const StateInMemory state = Staged();
  Result<SavedTensors> planned = PlanSavedTensors(state, facts, target);
  if (planned.ok()) return planned;
  return NameUsualFormat(std::move(planned).status(), state, facts, target);
}

Result<TrainingSave> RunCheckpoints::Plan(const Taken& taken) {
  CKPT_ASSIGN_OR_RETURN(TrainingRun run,
                        DescribeRun(run_, taken.progress, taken.updates, taken.digest, naming_));
  run.tensor_ranks = tensor_ranks_;
  if (!tensors_) {
    CKPT_ASSIGN_OR_RETURN(tensors_, PlanTensors(run));
  }
  CKPT_ASSIGN_OR_RETURN(CarriedFiles files, PublishedFiles(storage_, assets_, format_));
  return PlanTrainingSave(*tensors_, std::move(run), std::move(files));
}

// In a format that knows nothing of runs, a checkpoint says that it is what one of the usual format
// would be converted to: the way back has its names.
std::optional<ManifestOrigin> RunCheckpoints::Origin() const {
  if (format_.run != nullptr) return std::nullopt;
  ManifestOrigin origin = {.format = std::string(UsualRunFormat().name),
                           .shards = {},
                           .dropped = {},
                           .choices = {naming_.begin(), naming_.end()}};
  origin.choices["family"] = tensors_->family;
  return origin;
}

Status RunCheckpoints::Take(const RunProgress& progress) {
  CKPT_RETURN_IF_ERROR(Finish());
  waited_ = {};
  const Stopwatch watch(waited_);
  const Clock::time_point start = Clock::now();
  CKPT_RETURN_IF_ERROR(AgreeOn(world_, Stage()));
  Taken& taken = taken_.emplace(Taken());
  taken.progress = progress;
  taken.updates = trainer_.optimizer().steps();
  taken.hashing = trainer::BeginWork([this] { return SumStaged(); });
  taken.copying = Clock::now() - start;
  return OkStatus();
}

Status RunCheckpoints::Write(std::optional<double> next_loss) {
  taken_->progress.next_loss = next_loss;
  taken_->is_wanted = true;
  taken_->start = Clock::now();
  return settings_.async_save ? Poll() : FinishWriting();
}

void RunCheckpoints::Discard() {
  if (is_taken()) taken_.reset();
}

Status RunCheckpoints::Save(const RunProgress& progress) {
  CKPT_RETURN_IF_ERROR(Take(progress));
  return Write(progress.next_loss);
}

Status RunCheckpoints::Advance() {
  const bool is_planned = taken_->planning.valid();
  const bool is_ready =
      is_planned ? trainer::HasEnded(taken_->planning) : trainer::HasEnded(taken_->hashing);
  CKPT_ASSIGN_OR_RETURN(const bool all_are_ready, trainer::HoldsEverywhere(world_, is_ready));
  if (!all_are_ready) return OkStatus();
  Status advanced = is_planned ? BeginToWrite() : BeginToPlan();
  if (!advanced.ok()) taken_.reset();
  return advanced;
}

Status RunCheckpoints::BeginToPlan() {
  const Result<Hash128> mine = taken_->hashing.get();
  CKPT_RETURN_IF_ERROR(AgreeOn(world_, mine.ok() ? OkStatus() : mine.status()));
  // A rank that failed in the next step does not know its loss, and the others may.
  CKPT_ASSIGN_OR_RETURN(const bool is_loss_known,
                        trainer::HoldsEverywhere(world_, taken_->progress.next_loss.has_value()));
  if (!is_loss_known) taken_->progress.next_loss.reset();
  CKPT_ASSIGN_OR_RETURN(taken_->digest, DigestOf(*mine, taken_->progress, taken_->updates));
  taken_->planning = trainer::BeginWork([this] { return Plan(*taken_); });
  return OkStatus();
}

Status RunCheckpoints::BeginToWrite() {
  Result<TrainingSave> planned = taken_->planning.get();
  CKPT_RETURN_IF_ERROR(AgreeOn(world_, planned.ok() ? OkStatus() : planned.status()));
  const Taken taken = *std::exchange(taken_, std::nullopt);
  TrainingSave save = std::move(planned).value();
  const std::int64_t iteration = taken.progress.iteration;
  const Path target = settings_.save / megatron::IterationName(iteration);
  damaged_.erase(iteration);  // this checkpoint replaces it
  // With async_save there is no progress bar, because it would mix with the lines of training.
  const bool is_waited_for = world_.rank() == 0 && !settings_.async_save && voice_.make_progress;
  if (is_waited_for) progress_ = voice_.make_progress();
  trainer::WriteJob job = {
      .plan = std::move(save.plan),
      .writers = std::move(save.writers),
      .source = staging_->source(),
      .target = target,
      .staging = {.if_target_exists = StagedDirectory::IfTargetExists::kReplace,
                  .may_replace =
                      [](Storage& there, const Path& old) {
                        return CheckReplaceable(there, old, KnownRunRoot());
                      }},
      .threads = threads_,
      .tool = "ckptkit " CKPT_VERSION,
      .origin = Origin(),
      .progress = progress_.get(),
      .published = [this, iteration, damaged = damaged_]() -> Status {
        is_published_ = true;
        CKPT_RETURN_IF_ERROR(megatron::PointTrackerTo(storage_, settings_.save, iteration));
        if (settings_.keep_checkpoints == 0) return OkStatus();
        CKPT_RETURN_IF_ERROR(megatron::HideOldIterations(
            storage_, settings_.save,
            {.newest = iteration, .keep = settings_.keep_checkpoints, .not_counted = damaged}));
        removing_ =
            trainer::BeginWork([this] { return megatron::RemoveHidden(storage_, settings_.save); });
        return OkStatus();
      }};
  if (format_.prove != nullptr) {
    job.prove = [this](const Path& directory, const WritePlan& plan) {
      return format_.prove(storage_, directory / std::string(format_.file_in_directory), plan);
    };
  }
  is_published_ = false;
  if (Status started = writer_.Start(std::move(job)); !started.ok()) {
    progress_.reset();
    return SayWhatIsLeft(std::move(started), target);
  }
  under_way_ = {.iteration = iteration,
                .copying = taken.copying,
                .start = taken.start,
                .target = target,
                .assets = format_.assets_directory.empty()
                              ? target
                              : target / std::string(format_.assets_directory)};
  return OkStatus();
}

Status RunCheckpoints::SayWhatIsLeft(Status failure, const Path& target) const {
  if (failure.ok() || failure.kind() == ErrorKind::kCancelled) return failure;
  std::string hint;
  const Path partial = StagingOf(target);
  const Result<FileStat> stat = storage_.Stat(partial);
  if (stat.ok() && stat->type != FileType::kMissing) {
    hint += fmt::format("{} holds a part of it and can be removed; ", partial.string());
  }
  const bool is_full = failure.kind() == ErrorKind::kNoSpace;
  const std::string first = is_full ? MakeRoom("a save", save_bytes_) + " and " : "";
  if (whole_.empty()) {
    hint += fmt::format("no checkpoint of the run was saved before: {}start it again", first);
  } else {
    // Weights alone are not a run to resume.
    const std::string from =
        run_format_ == nullptr ? "begin a run with --init hf:" + whole_.string()
                               : "resume it with --load " +
                                     (has_saved_ ? whole_.parent_path() : settings_.load).string();
    hint += fmt::format("{} is complete: {}{}", whole_.string(), first, from);
  }
  return std::move(failure).Hint(hint);
}

Status RunCheckpoints::Conclude(Status status) {
  if (writer_.busy() || !under_way_) return status;
  progress_.reset();  // a bar clears its line before anything else is printed
  // The tracker, or the removal of older checkpoints, may fail behind a checkpoint that is
  // complete.
  if (status.ok() || is_published_) {
    whole_ = under_way_->target;
    has_saved_ = true;
  }
  status = SayWhatIsLeft(std::move(status), under_way_->target);
  if (status.ok()) {
    is_removing_ = settings_.keep_checkpoints != 0;
    const std::chrono::duration<double> whole =
        under_way_->copying + (Clock::now() - under_way_->start);
    Tell(fmt::format("saved iteration {} in {:.3f} s", under_way_->iteration, whole.count()) +
         (settings_.async_save ? fmt::format(", of which training waited {:.3f} s", waited_.count())
                               : std::string()));
    // The side files of the loaded checkpoint may have been removed with it.
    if (!assets_.empty()) assets_ = under_way_->assets;
  }
  under_way_.reset();
  return status;
}

Status RunCheckpoints::Poll() {
  const Stopwatch watch(waited_);
  if (taken_) return taken_->is_wanted ? Advance() : OkStatus();
  return Conclude(writer_.Poll());
}

Status RunCheckpoints::Finish() {
  CKPT_RETURN_IF_ERROR(FinishWriting());
  const Stopwatch watch(waited_);
  return FinishRemoving();
}

Status RunCheckpoints::FinishRemoving() {
  if (!std::exchange(is_removing_, false)) return OkStatus();
  Status removed = AgreeOn(world_, removing_.valid() ? removing_.get() : OkStatus());
  return removed.ok()
             ? std::move(removed)
             : std::move(removed).While("removing checkpoints that keep_checkpoints drops");
}

Status RunCheckpoints::FinishWriting() {
  const Stopwatch watch(waited_);
  while (taken_ && taken_->is_wanted) {
    if (taken_->planning.valid()) {
      taken_->planning.wait();
    } else {
      taken_->hashing.wait();
    }
    CKPT_RETURN_IF_ERROR(Advance());
  }
  return Conclude(writer_.Finish());
}

Result<std::string> RunCheckpoints::StateDigest(const RunProgress& progress) {
  CKPT_RETURN_IF_ERROR(Finish());  // until then the staging memory is in use
  CKPT_RETURN_IF_ERROR(AgreeOn(world_, Stage()));
  const Result<Hash128> mine = SumStaged();
  CKPT_RETURN_IF_ERROR(AgreeOn(world_, mine.ok() ? OkStatus() : mine.status()));
  return DigestOf(*mine, progress, trainer_.optimizer().steps());
}

}  // namespace ckpt::train

// The checkpoints that a running training writes.
#ifndef CKPT_TRAINER_RUN_RUN_CHECKPOINTS_H_
#define CKPT_TRAINER_RUN_RUN_CHECKPOINTS_H_

#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "converters/verbs/save_training_state.h"
#include "core/base/hash.h"
#include "core/base/result.h"
#include "core/exec/progress.h"
#include "core/io/storage.h"
#include "core/layout/resolve.h"
#include "core/training/run_format.h"
#include "formats/format.h"
#include "trainer/checkpoint/checkpoint_writer.h"
#include "trainer/checkpoint/staging.h"
#include "trainer/comm/host_group.h"
#include "trainer/run/checkpoint_settings.h"
#include "trainer/run/load_run.h"
#include "trainer/run/run_config.h"
#include "trainer/run/run_progress.h"
#include "trainer/run/save_room.h"
#include "trainer/step/rank_trainer.h"

namespace ckpt::train {

// The host's memory that each rank of `run` takes for its copy of the state when it saves as
// `settings` say: before the first step, once for all saves. A run that goes on from Megatron with
// tensor ranks takes some KiB more on rank 0. Errors: those of MapState.
Result<std::vector<std::uint64_t>> StagedBytes(const RunConfig& run,
                                               const CheckpointSettings& settings);

// One per rank. All calls except GoOnFrom are collective: every rank makes the same calls in the
// same order.
class RunCheckpoints {
 public:
  // `run`, `trainer`, `world` and `storage` outlive it. Nothing else uses `world` meanwhile, so
  // that a save can end although the ranks gave up training. A save that training waits for has
  // `threads` threads on this rank, another one has one.
  RunCheckpoints(Storage& storage, CheckpointSettings settings, const RunConfig& run,
                 trainer::RankTrainer& trainer, trainer::HostGroup& world, int threads,
                 RunVoice voice);
  RunCheckpoints(const RunCheckpoints&) = delete;  // a background save points to this object
  RunCheckpoints& operator=(const RunCheckpoints&) = delete;

  // Takes over from `loaded` what the settings do not give: names of parameters, the model's side
  // files. REQUIRES: nothing was saved yet.
  void GoOnFrom(const LoadedRun& loaded);
  // Compares the digest of the loaded state with the stored one.
  // Errors: kValueMismatch, kMissing (no digest was stored).
  Status Prove(const LoadedRun& loaded);

  // Checks, before the first step, everything that a save needs: memory for a copy of the state, a
  // plan of the whole checkpoint, and space on the disk for the saves of a run that is at `start`
  // and ends after step `last_step`. After it, a save can fail only because of its storage.
  // REQUIRES: the state is loaded.
  //
  // Errors: kNotFound (save_format hf without a config.json), kNoSpace (CheckRoomForSaves), those
  // of PlanSavedTensors and PlanTrainingSave.
  Status Prepare(const RunProgress& start, std::int64_t last_step);

  // A save has two parts, because the loss that proves it may be known only one step later. `Take`
  // begins to copy the state, after waiting for a save that is still running. `Write` makes a
  // checkpoint of the copy durable. With `async_save` it returns at once: training waits only while
  // the copy keeps it from changing the state. Other threads digest the copy, plan the checkpoint
  // and write it, and `Poll` goes on to the next of these when all ranks are ready. Errors: those
  // of either part.
  Status Take(const RunProgress& progress);
  // REQUIRES: is_taken(). The loss is stored if every rank gives it.
  Status Write(std::optional<double> next_loss);
  // Forgets what was taken and is not written yet. Not collective: a save that the other ranks go
  // on with fails.
  void Discard();
  [[nodiscard]] bool is_taken() const { return taken_ && !taken_->is_wanted; }
  // Both parts, for a progress that is complete.
  Status Save(const RunProgress& progress);
  // Call it between steps: advances a background save, and returns its failure if it failed.
  Status Poll();
  // Waits for a background save, and for the removal of older checkpoints.
  Status Finish();
  // Digest of weights, buffers, moments and progress: 32 hex digits, the same on every mesh.
  Result<std::string> StateDigest(const RunProgress& progress);

 private:
  using Clock = std::chrono::steady_clock;
  // A copy of the state of which nothing is written yet.
  struct Taken {
    RunProgress progress;
    std::int64_t updates = 0;  // of the optimizer
    std::string digest;
    std::chrono::duration<double> copying{};  // as long as `Take` took
    bool is_wanted = false;                   // `Write` was called
    Clock::time_point start;                  // of writing
    std::future<Result<Hash128>> hashing;     // waits for the copy, and sums this rank's rows
    std::future<Result<TrainingSave>> planning;
  };
  struct UnderWay {
    std::int64_t iteration = 0;
    std::chrono::duration<double> copying{};
    Clock::time_point start;  // of writing
    Path target;
    Path assets;  // the model's side files in the checkpoint
  };

  void Tell(const std::string& text) const;
  Status AllocateStaging();
  // Begins to copy this rank's part of the state.
  Status Stage();
  // Waits for the copy. Runs on another thread.
  Result<Hash128> SumStaged();
  Status PlanFirstSave(const RunProgress& start, std::int64_t last_step);
  // Checks that the disk has space for checkpoints of `plan`. On rank 0.
  Status CheckDisk(const WritePlan& plan, const RunProgress& start, std::int64_t last_step);
  [[nodiscard]] Result<SavesAhead> LookAhead(const WritePlan& plan, const RunProgress& start,
                                             std::int64_t last_step) const;
  // Goes on with what was taken if all ranks are ready for it: to plan when the digest is known, to
  // write when it is planned.
  Status Advance();
  Status BeginToPlan();
  Status BeginToWrite();
  // The digest of the whole state, from this rank's sum.
  Result<std::string> DigestOf(const Hash128& mine, const RunProgress& progress,
                               std::int64_t updates);
  [[nodiscard]] StateInMemory Staged() const;
  [[nodiscard]] Result<SavedTensors> PlanTensors(const TrainingRun& run) const;
  [[nodiscard]] std::optional<ManifestOrigin> Origin() const;
  // Plans every file of a checkpoint of the staged state.
  Result<TrainingSave> Plan(const Taken& taken);
  // Adds a hint to the failure of a save to `target`: what it left, and how to resume the run.
  [[nodiscard]] Status SayWhatIsLeft(Status failure, const Path& target) const;
  // Handles the result `status` of a call of the writer.
  Status Conclude(Status status);
  // Waits for a save that was written.
  Status FinishWriting();
  // Waits until checkpoints that are not kept are gone. Training goes on meanwhile: to remove a
  // gigabyte takes two tenths of a second.
  Status FinishRemoving();

  Storage& storage_;
  const CheckpointSettings settings_;
  const RunConfig& run_;
  trainer::RankTrainer& trainer_;
  trainer::HostGroup& world_;
  const int threads_;  // that digest and write
  const RunVoice voice_;
  Path whole_;                    // the newest complete checkpoint of the run; empty: none
  bool has_saved_ = false;        // `whole_` is this process's own, not the one that it loaded
  bool is_published_ = false;     // rank 0: the save that is under way has its name
  std::uint64_t save_bytes_ = 0;  // on the disk, per save; 0: not known yet
  Path assets_;                   // the model's config.json and tokenizer; empty: none
  layout::Choices naming_;
  const Format& format_;            // of the saves
  const RunFormat* run_format_;     // how they hold the run; null: they hold only weights
  std::set<std::int64_t> damaged_;  // iterations that this run skipped as damaged
  int tensor_ranks_ = 1;            // Megatron's, for when it resumes the run
  std::optional<trainer::Staging> staging_;
  std::optional<SavedTensors> tensors_;     // since the first plan
  std::chrono::duration<double> waited_{};  // by training, for the save that is taken or written
  std::optional<Taken> taken_;
  std::optional<UnderWay> under_way_;
  std::unique_ptr<ProgressSink> progress_;  // on rank 0, while it waits for a save
  bool is_removing_ = false;                // rank 0 removes older checkpoints, or has
  std::future<Status> removing_;            // rank 0
  trainer::CheckpointWriter writer_;        // last, because it uses the members above
};

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_RUN_CHECKPOINTS_H_

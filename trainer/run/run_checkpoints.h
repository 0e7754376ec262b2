// Checkpoints that a running training leaves behind.
#ifndef CKPT_TRAINER_RUN_RUN_CHECKPOINTS_H_
#define CKPT_TRAINER_RUN_RUN_CHECKPOINTS_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "converters/verbs/save_training_state.h"
#include "core/base/result.h"
#include "core/exec/progress.h"
#include "core/io/storage.h"
#include "core/layout/resolve.h"
#include "core/training/run_format.h"
#include "formats/format.h"
#include "trainer/checkpoint/checkpoint_writer.h"
#include "trainer/checkpoint/staging.h"
#include "trainer/comm/communicator.h"
#include "trainer/run/checkpoint_settings.h"
#include "trainer/run/load_run.h"
#include "trainer/run/run_config.h"
#include "trainer/run/run_progress.h"
#include "trainer/run/save_room.h"
#include "trainer/step/rank_trainer.h"

namespace ckpt::train {

// One a rank. All its calls but GoOnFrom are collective: every rank makes the same ones in the same
// order.
class RunCheckpoints {
 public:
  // `run`, `trainer`, `world` and `storage` outlive it.
  RunCheckpoints(Storage& storage, CheckpointSettings settings, const RunConfig& run,
                 trainer::RankTrainer& trainer, trainer::Communicator& world, RunVoice voice);
  RunCheckpoints(const RunCheckpoints&) = delete;  // a background save points at it
  RunCheckpoints& operator=(const RunCheckpoints&) = delete;

  // What is not asked for otherwise will be as in `loaded`: names of parameters, the model's side
  // files. REQUIRES: nothing was saved yet.
  void GoOnFrom(const LoadedRun& loaded);
  // Compares the digest of what was loaded with the stored one.
  // Errors: kValueMismatch, kMissing (none was stored).
  Status Prove(const LoadedRun& loaded);

  // Everything that a save will need: memory for a copy of the state, a plan of the whole checkpoint, and room on the disk
  // for those that a run at `start` has before it. After it a save fails for nothing but its storage. REQUIRES: the state is
  // loaded.
  //
  // Errors: kNotFound (save_format hf without a config.json), kNoSpace (CheckRoomForSaves), those of PlanSavedTensors and
  //         PlanTrainingSave.
  Status Prepare(const RunProgress& start);

  // A save in two parts, since the loss that proves it may be known a step later only. `Take` copies the state; one that
  // is still under way is waited for first. `Write` makes a checkpoint of the copy durable; with `async_save` it returns
  // when the writing has begun. Errors: those of either.
  Status Take(const RunProgress& progress);
  // REQUIRES: is_taken().
  Status Write(std::optional<double> next_loss);
  [[nodiscard]] bool is_taken() const { return taken_.has_value(); }
  // Both, of a progress that is complete.
  Status Save(const RunProgress& progress);
  // Between steps: brings a background save on, and returns what went wrong with it.
  Status Poll();
  // Waits for a background save.
  Status Finish();
  // Digest of weights, buffers, moments and progress; the same on every mesh. 32 hex digits.
  Result<std::string> StateDigest(const RunProgress& progress);

 private:
  using Clock = std::chrono::steady_clock;
  // A copy of the state, of which nothing is written yet.
  struct Taken {
    RunProgress progress;
    std::int64_t updates = 0;  // of the optimizer
    std::string digest;
    std::chrono::duration<double> copying{};
  };
  struct UnderWay {
    std::int64_t iteration = 0;
    std::chrono::duration<double> copying{};
    Clock::time_point start;                 // of the writing
    std::chrono::duration<double> waited{};  // by training, the copying included
    Path target;
    Path assets;  // where it will have the model's side files
  };

  void Tell(const std::string& text) const;
  Status AllocateStaging();
  // This rank's part of the state, copied.
  Status Stage();
  Status PlanFirstSave(const RunProgress& start);
  // Whether the disk has room for checkpoints of `plan`. By rank 0.
  Status CheckDisk(const WritePlan& plan, const RunProgress& start);
  [[nodiscard]] Result<SavesAhead> LookAhead(const WritePlan& plan, const RunProgress& start) const;
  Status Start(const Taken& taken);
  Result<std::string> DigestStaged(const RunProgress& progress);
  [[nodiscard]] StateInMemory Staged() const;
  Result<SavedTensors> PlanTensors() const;
  [[nodiscard]] std::optional<ManifestOrigin> Origin() const;
  // Every file of a checkpoint of what is staged.
  Result<TrainingSave> Plan(const Taken& taken);
  // The failure of a save to `target`, with a hint at what it left and how the run can go on.
  [[nodiscard]] Status SayWhatIsLeft(Status failure, const Path& target) const;
  // What follows a call of the writer that gave `status`.
  Status Conclude(Status status);

  Storage& storage_;
  const CheckpointSettings settings_;
  const RunConfig& run_;
  trainer::RankTrainer& trainer_;
  trainer::Communicator& world_;
  const RunVoice voice_;
  Path whole_;                    // the newest checkpoint of the run; empty: there is none
  std::uint64_t save_bytes_ = 0;  // of the disk, that one save takes; 0: not known yet
  Path assets_;                   // of the model: its config.json and tokenizer; empty: none
  layout::Choices naming_;
  const Format& format_;  // of the saves; without `run`, they hold weights only
  std::set<std::int64_t> damaged_;  // iterations that this run went back behind
  int tensor_ranks_ = 1;            // of Megatron, if it goes on with the run as before
  std::optional<trainer::Staging> staging_;
  std::optional<SavedTensors> tensors_;  // from the first plan on
  std::optional<Taken> taken_;
  std::optional<UnderWay> under_way_;
  std::unique_ptr<ProgressSink> progress_;  // of rank 0, while it waits for a save
  trainer::CheckpointWriter writer_;        // last: what it writes is above
};

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_RUN_CHECKPOINTS_H_

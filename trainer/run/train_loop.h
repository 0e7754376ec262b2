// TrainLoop: the steps of a run, from where its state is to where it ends.
#ifndef CKPT_TRAINER_RUN_TRAIN_LOOP_H_
#define CKPT_TRAINER_RUN_TRAIN_LOOP_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "core/base/result.h"
#include "trainer/comm/communicator.h"
#include "trainer/data/batch_reader.h"
#include "trainer/metrics/step_metrics.h"
#include "trainer/run/checkpoint_settings.h"
#include "trainer/run/loop_settings.h"
#include "trainer/run/run_checkpoints.h"
#include "trainer/run/run_progress.h"
#include "trainer/run/step_observer.h"
#include "trainer/step/rank_trainer.h"

namespace ckpt::train {

// What a rank trains with. Everything outlives the loop.
struct LoopInput {
  const LoopSettings& settings;
  const CheckpointSettings& checkpoint_settings;
  trainer::RankTrainer& trainer;
  RunCheckpoints& checkpoints;
  trainer::Communicator& world;
  const trainer::BatchReader& batches;
  const trainer::BatchReader* valid = nullptr;  // null: nothing is evaluated
  StepObserver* observer = nullptr;             // of rank 0
  // Asked between steps: whether this rank was told to end the run.
  std::function<bool()> is_stop_asked;
  // Told every step, on every rank.
  std::function<void(const StepMetrics& metrics)> on_step = {};
};

enum class EndReason : std::uint8_t {
  kFinished,      // train_iters steps are done
  kNothingToDo,   // they were done before
  kExitInterval,  // as exit_interval says
  kStopped,       // a rank was told to
};

struct LoopEnd {
  RunProgress progress;
  EndReason reason = EndReason::kFinished;
};

// A rank's micro-batches of a step.
using Batch = std::vector<trainer::HostMicroBatch>;

// Thread-safety: the rank's thread. Every rank makes the same calls, and all end at the same step.
class TrainLoop {
 public:
  // From where `start` is.
  TrainLoop(const LoopInput& input, const RunProgress& start) : in_(input), progress_(start) {}

  // Trains, tells, evaluates and saves until one of the reasons to end; what was trained is saved then, and durable. What a
  // save needs is found out before the first step. A wish to stop ends an evaluation between two batches.
  //
  // With `save_proof` a checkpoint is copied where it is due, and written when the step that follows has told its loss; of a
  // run that was told to stop it is written at once, without.
  //
  // Errors: kValueMismatch (a loss or a gradient is not finite: names step and samples; nothing of that step is saved),
  //         those of the data, of the checkpoints and of the observer, kCancelled (another rank failed).
  Result<LoopEnd> Run();

 private:
  [[nodiscard]] bool saves() const { return !in_.checkpoint_settings.save.empty(); }
  // The batch that follows, which a save may have read already.
  Result<Batch> ReadNext();
  Result<StepMetrics> Step();
  [[nodiscard]] bool IsEvaluationDue() const;
  Status Evaluate(StepMetrics& metrics);
  // Whether no rank was told to end the run.
  Result<bool> IsToldToGoOn();
  // Nothing to end for yet.
  Result<std::optional<EndReason>> ReasonToEnd();
  // The error of a run whose step failed, when what can still be saved is.
  Status EndWith(Status failure, std::int64_t step);
  // `reason`: of the end that this save belongs to.
  Status Save(std::optional<EndReason> reason);
  Status WriteTaken(std::optional<double> next_loss);

  const LoopInput in_;
  RunProgress progress_;
  std::optional<Batch> next_;
  double save_ms_ = 0;  // that training waited for checkpoints since the last step was told
};

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_TRAIN_LOOP_H_

// TrainLoop: the steps of a run, from its current state to its end.
#ifndef CKPT_TRAINER_RUN_TRAIN_LOOP_H_
#define CKPT_TRAINER_RUN_TRAIN_LOOP_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include "core/base/result.h"
#include "trainer/comm/host_group.h"
#include "trainer/data/batch_ahead.h"
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
  trainer::HostGroup& world;
  const trainer::BatchReader& batches;
  const trainer::BatchReader* valid = nullptr;  // null: no evaluation
  StepObserver* observer = nullptr;             // set on rank 0
  // Called between steps: whether this rank was asked to end the run.
  std::function<bool()> is_stop_asked;
  // Called after every step, on every rank.
  std::function<void(const StepMetrics& metrics)> on_step = {};
};

enum class EndReason : std::uint8_t {
  kFinished,      // train_iters steps are done
  kNothingToDo,   // they were done already
  kExitInterval,  // at a multiple of exit_interval
  kStopped,       // a rank was asked to stop
};

struct LoopEnd {
  RunProgress progress;
  EndReason reason = EndReason::kFinished;
};

// Thread-safety: the rank's thread. Every rank makes the same calls, and all end at the same step.
class TrainLoop {
 public:
  // Starts from `start`.
  TrainLoop(const LoopInput& input, const RunProgress& start);

  // Trains, reports, evaluates and saves until there is a reason to end. Then the state is saved
  // and durable. What a save needs is checked before the first step. A request to stop ends an
  // evaluation after the current batch.
  //
  // Where the device works while the host goes on, the next step is enqueued before a step's report
  // is awaited, unless something must happen between the two. A request to stop travels with a
  // step, so the run ends with that step or, if the next one has been enqueued, with the next.
  //
  // With `save_proof`, the state is copied when a checkpoint is due, and written when the next step
  // has computed its loss. A run that is asked to stop writes it at once, without the loss.
  //
  // Errors: kValueMismatch (a loss or a gradient is not finite: names step and samples; nothing of
  // that step is saved), those of the data, of the checkpoints and of the observer, kCancelled
  // (another rank failed). If an evaluation or the observer fails after the last step, the state is
  // saved all the same.
  Result<LoopEnd> Run();

 private:
  [[nodiscard]] bool saves() const { return !in_.checkpoint_settings.save.empty(); }
  // Enqueues as many steps as may be in flight.
  Status EnqueueSteps();
  // The report of the next step.
  Result<StepMetrics> CollectStep();
  [[nodiscard]] bool IsEvaluationDue(std::int64_t step) const;
  [[nodiscard]] bool IsSaveDue(std::int64_t step) const;
  // The reason to end after a step, except requests to stop.
  [[nodiscard]] std::optional<EndReason> PlannedEnd(std::int64_t step) const;
  // Whether the loop must know the result of `step` before it begins the next one.
  [[nodiscard]] bool StopsBehind(std::int64_t step) const;
  // Errors: those of the observer and of an evaluation. Such an error ends the run.
  Status Report(StepMetrics& metrics);
  Status Evaluate(StepMetrics& metrics);
  // Whether no rank was asked to end the run. A host exchange: not for every step.
  Result<bool> IsToldToGoOn();
  // Empty if there is no reason yet.
  std::optional<EndReason> ReasonToEnd();
  // Saves what can still be saved after a failed step, and returns the run's error.
  Status EndWith(Status failure, std::int64_t step);
  // `reason`: why the run ends, if this is its last save.
  Status Save(std::optional<EndReason> reason);
  Status WriteTaken(std::optional<double> next_loss);

  const LoopInput in_;
  RunProgress progress_;  // of the steps that were collected
  trainer::BatchAhead ahead_;
  // The batch after the steps in flight, if it is read already.
  std::optional<Result<trainer::BatchAhead::Batch>> next_;
  std::chrono::steady_clock::time_point step_start_;  // of the oldest step in flight
  bool is_stop_asked_ = false;                        // by any rank
  bool is_apart_ = false;  // an evaluation failed on this rank alone: the others wait in it
  double save_ms_ = 0;     // time that training waited for checkpoints since the last report
};

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_TRAIN_LOOP_H_

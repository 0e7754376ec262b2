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
  // The time of a step whose arithmetic runs at the peak of the devices; 0: not known.
  double ideal_step_ms = 0;
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
  // Such a device begins the next step as soon as the copy of the state for a checkpoint has been
  // enqueued: only that step's update waits for the copy, and on the device. The host waits for
  // what an earlier save has not written yet, and else for nothing.
  //
  // With `save_proof`, the state is copied when a checkpoint is due, and written when the next step
  // has computed its loss. A run that is asked to stop writes it at once, without the loss.
  //
  // Errors: kValueMismatch (a loss or a gradient is not finite: names step and samples; nothing of
  // that step is saved), those of the data, of the checkpoints and of the observer, kCancelled
  // (another rank failed). The last state is saved before the last evaluation and the last report,
  // which may fail. A checkpoint that was taken is written whatever fails later, on one rank or on
  // all, with two exceptions: the observer lacks one of its steps, or ranks are processes, of which
  // one that fails alone ends all at once.
  Result<LoopEnd> Run();

 private:
  [[nodiscard]] bool saves() const { return !in_.checkpoint_settings.save.empty(); }
  Result<LoopEnd> RunToEnd();
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
  // Errors: those of the observer and of an evaluation. Such an error ends the run. If the observer
  // fails, what was taken and is not written yet is discarded.
  Status Report(StepMetrics& metrics, bool may_evaluate);
  Status Evaluate(StepMetrics& metrics);
  // Whether no rank was asked to end the run. A host exchange: not for every step.
  Result<bool> IsToldToGoOn();
  // Empty if there is no reason yet.
  std::optional<EndReason> ReasonToEnd();
  // The run's error from that of a step.
  Status NameStep(Status failure, std::int64_t step);
  // Ends the calls in which the others wait for this rank, if it failed alone. Returns whether the
  // ranks can still save together.
  bool LeaveTogether(const Status& failure);
  // Writes what was taken before the failure. Returns the run's error.
  Status EndSaves(Status failure);
  Status Take();
  // Enqueues the steps behind a copy of the state, if the device need not wait for the host.
  Status GoOnBehindCopy();
  // The batch of the step after `consumed` samples, when it is read.
  Result<trainer::BatchAhead::Batch> TakeBatch(std::int64_t consumed);
  // Reads the batch of the next step into `next_`, if all ranks can. Returns whether they can.
  // REQUIRES: no step is in flight.
  Result<bool> ReadNext();
  // Makes a checkpoint of what was taken, now or when the next step has computed its loss.
  // `reason`: why the run ends, if this is its last save.
  Status Write(std::optional<EndReason> reason);
  Status WriteTaken(std::optional<double> next_loss);

  const LoopInput in_;
  RunProgress progress_;  // of the steps that were collected
  trainer::BatchAhead ahead_;
  // The batch after the steps in flight, if it is read already.
  std::optional<Result<trainer::BatchAhead::Batch>> next_;
  std::chrono::steady_clock::time_point step_start_;  // of the oldest step in flight
  bool is_stop_asked_ = false;                        // by any rank
  bool fails_alone_ = true;  // a failure may be of this rank alone: the others may wait for it
  double save_ms_ = 0;       // time that training waited for checkpoints since the last report
  double data_wait_ms_ = 0;  // time that the host waited for batches since the last report
};

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_TRAIN_LOOP_H_

#include "trainer/run/train_loop.h"

#include <chrono>
#include <cstddef>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "core/base/checked_math.h"
#include "trainer/comm/agreement.h"
#include "trainer/run/evaluation.h"
#include "trainer/run/internal/bad_batch.h"

namespace ckpt::train {
namespace {

using Clock = std::chrono::steady_clock;

double MillisecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

bool IsMultiple(std::int64_t step, std::int64_t interval) {
  return interval > 0 && step % interval == 0;
}

// The sample behind the last step's; the largest number if it is beyond.
std::int64_t EndOfSamples(const LoopInput& input, const RunProgress& start) {
  const std::int64_t steps = LastStep(input.settings, start.iteration) - start.iteration;
  std::int64_t end = 0;
  return CheckedAdd(start.consumed_samples, input.batches.SamplesOf(steps), &end)
             ? end
             : std::numeric_limits<std::int64_t>::max();
}

}  // namespace

TrainLoop::TrainLoop(const LoopInput& input, const RunProgress& start)
    : in_(input), progress_(start), ahead_(in_.batches, EndOfSamples(input, start)) {}

Result<LoopEnd> TrainLoop::Run() {
  Result<LoopEnd> end = RunToEnd();
  if (end.ok()) return end;
  return EndSaves(std::move(end).status());
}

Result<LoopEnd> TrainLoop::RunToEnd() {
  std::optional<EndReason> reason;
  if (progress_.iteration >= in_.settings.train_iters) reason = EndReason::kNothingToDo;
  if (!reason && saves()) {
    CKPT_RETURN_IF_ERROR(
        in_.checkpoints.Prepare(progress_, LastStep(in_.settings, progress_.iteration)));
  }
  while (!reason) {
    CKPT_RETURN_IF_ERROR(EnqueueSteps());
    CKPT_ASSIGN_OR_RETURN(StepMetrics metrics, CollectStep());
    CKPT_RETURN_IF_ERROR(in_.checkpoints.Poll());
    reason = ReasonToEnd();
    // Before an evaluation: a device on which one failed may not copy the state any more.
    bool is_taken = saves() && (reason || IsSaveDue(progress_.iteration));
    Status status = is_taken ? Take() : OkStatus();
    // The last checkpoint does not wait for an evaluation, in which the run may be lost.
    if (status.ok() && is_taken) status = reason ? Write(reason) : GoOnBehindCopy();
    status.Add(Report(metrics, /*may_evaluate=*/status.ok()));
    if (!reason) {
      reason = ReasonToEnd();  // a rank may have been asked to stop meanwhile
      if (reason && saves() && !is_taken) {
        status.Add(Take());
        is_taken = true;
      }
      if (status.ok() && is_taken) status = Write(reason);
    }
    if (!status.ok()) return status;
  }
  CKPT_RETURN_IF_ERROR(in_.checkpoints.Finish());
  if (in_.observer != nullptr) CKPT_RETURN_IF_ERROR(in_.observer->Sync());
  progress_.next_loss.reset();  // known only after some saves
  return LoopEnd{.progress = progress_, .reason = *reason};
}

Status TrainLoop::EnqueueSteps() {
  trainer::RankTrainer& trainer = in_.trainer;
  while (trainer.num_in_flight() < trainer.max_in_flight()) {
    const std::int64_t ahead = trainer.num_in_flight();
    if (ahead > 0 && (is_stop_asked_ || StopsBehind(progress_.iteration + ahead))) break;
    if (ahead == 0) step_start_ = Clock::now();
    if (!next_) {
      next_ = TakeBatch(progress_.consumed_samples + in_.batches.SamplesOf(ahead));
    }
    if (!next_->ok()) {
      // The steps before are reported first.
      return ahead > 0 ? OkStatus() : std::exchange(next_, std::nullopt)->status();
    }
    const Status enqueued = trainer.Enqueue(**next_, in_.is_stop_asked);
    next_.reset();
    if (!enqueued.ok()) return NameStep(enqueued, progress_.iteration + ahead + 1);
  }
  return OkStatus();
}

Result<trainer::BatchAhead::Batch> TrainLoop::TakeBatch(std::int64_t consumed) {
  const Clock::time_point start = Clock::now();
  Result<trainer::BatchAhead::Batch> batch = ahead_.Take(consumed);
  data_wait_ms_ += MillisecondsSince(start);
  return batch;
}

Result<StepMetrics> TrainLoop::CollectStep() {
  const std::int64_t step = progress_.iteration + 1;
  const Result<trainer::StepReport> report = in_.trainer.Collect();
  if (!report.ok()) return NameStep(report.status(), step);
  progress_.iteration = step;
  progress_.consumed_samples += in_.batches.SamplesOf(1);
  is_stop_asked_ = is_stop_asked_ || report->is_stop_asked;
  StepMetrics metrics = {.step = step,
                         .loss = report->loss,
                         .grad_norm = report->grad_norm,
                         .lr = report->lr,
                         .aux_loss = report->aux_loss,
                         .tokens = report->tokens,
                         .step_ms = MillisecondsSince(step_start_),
                         .phase_ms = report->phase_ms,
                         .rank_phases = report->rank_phases,
                         .peak_bytes = report->peak_bytes,
                         .experts = report->experts};
  for (std::size_t use = 0; use < metrics.rank_peak_bytes.size(); ++use) {
    metrics.rank_peak_bytes[use] =
        in_.trainer.device().usage(static_cast<trainer::MemoryUse>(use)).peak_bytes;
  }
  if (in_.ideal_step_ms > 0 && metrics.step_ms > 0) {
    metrics.mfu = in_.ideal_step_ms / metrics.step_ms;
  }
  step_start_ = Clock::now();
  // This step began with the weights that wait to be written, so its loss is their proof.
  if (in_.checkpoints.is_taken()) CKPT_RETURN_IF_ERROR(WriteTaken(report->loss));
  return metrics;
}

Status TrainLoop::NameStep(Status failure, std::int64_t step) {
  const bool is_bad_batch = failure.kind() == ErrorKind::kValueMismatch;
  fails_alone_ = !is_bad_batch && failure.kind() != ErrorKind::kUsage;
  if (is_bad_batch) {
    return NameBadBatch(failure, {.step = step, .consumed_samples = progress_.consumed_samples},
                        in_.batches, in_.trainer, in_.world);
  }
  return std::move(failure).While(fmt::format("training step {}", step));
}

bool TrainLoop::LeaveTogether(const Status& failure) {
  if (in_.world.size() == 1 || !fails_alone_) return true;
  if (in_.world.abort_ends_processes()) return false;  // the caller of the loop decides when
  in_.world.Abort(failure);
  return true;
}

Status TrainLoop::EndSaves(Status failure) {
  if (!LeaveTogether(failure)) return failure;
  // The state that is being saved is from an earlier step and good.
  if (in_.checkpoints.is_taken()) failure.Add(in_.checkpoints.Write(std::nullopt));
  failure.Add(in_.checkpoints.Finish());
  return failure;
}

Status TrainLoop::WriteTaken(std::optional<double> next_loss) {
  const Clock::time_point start = Clock::now();
  CKPT_RETURN_IF_ERROR(in_.checkpoints.Write(next_loss));
  save_ms_ += MillisecondsSince(start);
  return OkStatus();
}

Status TrainLoop::Report(StepMetrics& metrics, bool may_evaluate) {
  Status status;
  if (may_evaluate && IsEvaluationDue(progress_.iteration)) status = Evaluate(metrics);
  metrics.save_ms = std::exchange(save_ms_, 0);
  metrics.data_wait_ms = std::exchange(data_wait_ms_, 0);
  if (in_.on_step) in_.on_step(metrics);
  if (in_.observer == nullptr) return status;
  Status observed = in_.observer->OnStep(metrics);
  // A checkpoint must not contain steps that the metrics lack, unless the run ended with it.
  if (observed.ok() && in_.checkpoints.is_taken()) observed = in_.observer->Sync();
  if (!observed.ok()) in_.checkpoints.Discard();
  status.Add(std::move(observed));
  return status;
}

Status TrainLoop::Evaluate(StepMetrics& metrics) {
  const Clock::time_point start = Clock::now();
  bool is_of_all = in_.world.size() == 1;
  Result<std::optional<trainer::Evaluation>> evaluation = EvaluateBatches(
      in_.trainer, *in_.valid, in_.settings.eval_iters, [&](const Status& read) -> Result<bool> {
        Status agreed = trainer::AgreeOn(in_.world, read);
        if (agreed.ok()) return IsToldToGoOn();
        is_of_all = true;
        return agreed;
      });
  if (!evaluation.ok()) {
    fails_alone_ = !is_of_all && evaluation.status().kind() != ErrorKind::kValueMismatch;
    return std::move(evaluation)
        .status()
        .While(fmt::format("evaluating after step {}", progress_.iteration));
  }
  // Asked to stop: the loss over fewer batches would be another figure.
  is_stop_asked_ = is_stop_asked_ || !*evaluation;
  if (!*evaluation) return OkStatus();
  metrics.eval_loss = (*evaluation)->loss;
  metrics.eval_ms = MillisecondsSince(start);
  return OkStatus();
}

bool TrainLoop::IsEvaluationDue(std::int64_t step) const {
  if (in_.valid == nullptr || in_.settings.eval_interval == 0) return false;
  return IsMultiple(step, in_.settings.eval_interval) || step == in_.settings.train_iters;
}

bool TrainLoop::IsSaveDue(std::int64_t step) const {
  return saves() && IsMultiple(step, in_.checkpoint_settings.save_interval);
}

std::optional<EndReason> TrainLoop::PlannedEnd(std::int64_t step) const {
  if (step >= in_.settings.train_iters) return EndReason::kFinished;
  if (IsMultiple(step, in_.settings.exit_interval)) return EndReason::kExitInterval;
  return std::nullopt;
}

bool TrainLoop::StopsBehind(std::int64_t step) const {
  return IsEvaluationDue(step) || IsSaveDue(step) || PlannedEnd(step).has_value();
}

Result<bool> TrainLoop::IsToldToGoOn() {
  return trainer::HoldsEverywhere(in_.world, !in_.is_stop_asked());
}

std::optional<EndReason> TrainLoop::ReasonToEnd() {
  // A rank alone need not vote, so its run ends at once.
  if (in_.world.size() == 1 && in_.is_stop_asked()) is_stop_asked_ = true;
  if (in_.trainer.num_in_flight() > 0) return std::nullopt;
  const std::optional<EndReason> planned = PlannedEnd(progress_.iteration);
  if (planned == EndReason::kFinished) return planned;
  return is_stop_asked_ ? EndReason::kStopped : planned;
}

Status TrainLoop::Take() {
  const Clock::time_point start = Clock::now();
  CKPT_RETURN_IF_ERROR(in_.checkpoints.Take(progress_));
  save_ms_ += MillisecondsSince(start);
  return OkStatus();
}

// A step on such a device runs while the host does what follows: a report, files that are synced.
Status TrainLoop::GoOnBehindCopy() {
  if (in_.trainer.max_in_flight() == 1 || IsEvaluationDue(progress_.iteration)) return OkStatus();
  if (in_.checkpoint_settings.save_proof) {
    CKPT_ASSIGN_OR_RETURN(const bool is_read, ReadNext());
    if (!is_read) return OkStatus();  // Write knows what to do then
  }
  return EnqueueSteps();
}

Result<bool> TrainLoop::ReadNext() {
  if (!next_) next_ = TakeBatch(progress_.consumed_samples);
  CKPT_ASSIGN_OR_RETURN(const bool is_read, trainer::HoldsEverywhere(in_.world, next_->ok()));
  if (!is_read) next_.reset();
  return is_read;
}

Status TrainLoop::Write(std::optional<EndReason> reason) {
  // A proof at the end takes half a step, for which a stopped run may not have the time.
  const bool is_hurried = reason == EndReason::kStopped;
  if (!in_.checkpoint_settings.save_proof || is_hurried) return WriteTaken(std::nullopt);
  if (in_.trainer.num_in_flight() > 0) return OkStatus();  // the next step computes the loss
  // It will. But if its batch cannot be read, the checkpoint must still be written.
  CKPT_ASSIGN_OR_RETURN(const bool is_read, ReadNext());
  if (!is_read) {
    CKPT_RETURN_IF_ERROR(WriteTaken(std::nullopt));
    // The next step will fail on this batch, and the writing must have ended by then.
    return in_.checkpoints.Finish();
  }
  if (!reason) return OkStatus();
  Result<trainer::Evaluation> evaluation = in_.trainer.Evaluate(**next_);
  next_.reset();
  if (evaluation.ok()) return WriteTaken(evaluation->loss);
  // The state is good, although the run could not have gone on from it. All ranks find a loss that
  // is not finite. After another failure the others may wait inside, and the loop's end writes it.
  const bool is_of_all = evaluation.status().kind() == ErrorKind::kValueMismatch;
  if (is_of_all || in_.world.size() == 1) return WriteTaken(std::nullopt);
  return std::move(evaluation).status().While("computing the loss that proves the last checkpoint");
}

}  // namespace ckpt::train

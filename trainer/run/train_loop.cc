#include "trainer/run/train_loop.h"

#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "trainer/comm/agreement.h"
#include "trainer/run/evaluation.h"
#include "trainer/run/internal/bad_batch.h"

namespace ckpt::train {
namespace {

class Stopwatch {
 public:
  [[nodiscard]] double Milliseconds() const {
    return std::chrono::duration<double, std::milli>(Clock::now() - start_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start_ = Clock::now();
};

bool IsMultiple(std::int64_t step, std::int64_t interval) {
  return interval > 0 && step % interval == 0;
}

}  // namespace

Result<LoopEnd> TrainLoop::Run() {
  std::optional<EndReason> reason;
  if (progress_.iteration >= in_.settings.train_iters) reason = EndReason::kNothingToDo;
  if (!reason && saves()) CKPT_RETURN_IF_ERROR(in_.checkpoints.Prepare(progress_));
  while (!reason) {
    CKPT_ASSIGN_OR_RETURN(StepMetrics metrics, Step());
    if (IsEvaluationDue()) CKPT_RETURN_IF_ERROR(Evaluate(metrics));
    metrics.save_ms = std::exchange(save_ms_, 0);
    if (in_.on_step) in_.on_step(metrics);
    if (in_.observer != nullptr) CKPT_RETURN_IF_ERROR(in_.observer->OnStep(metrics));
    CKPT_RETURN_IF_ERROR(in_.checkpoints.Poll());
    CKPT_ASSIGN_OR_RETURN(reason, ReasonToEnd());
    const bool is_due = IsMultiple(progress_.iteration, in_.checkpoint_settings.save_interval);
    if (saves() && (reason || is_due)) CKPT_RETURN_IF_ERROR(Save(reason));
  }
  CKPT_RETURN_IF_ERROR(in_.checkpoints.Finish());
  if (in_.observer != nullptr) CKPT_RETURN_IF_ERROR(in_.observer->Sync());
  progress_.next_loss.reset();  // known only after some saves
  return LoopEnd{.progress = progress_, .reason = *reason};
}

Result<Batch> TrainLoop::ReadNext() {
  if (next_) return *std::exchange(next_, std::nullopt);
  return in_.batches.ReadStep(progress_.consumed_samples);
}

Result<StepMetrics> TrainLoop::Step() {
  const Stopwatch watch;
  const std::int64_t step = progress_.iteration + 1;
  CKPT_ASSIGN_OR_RETURN(const Batch batch, ReadNext());
  const Result<trainer::StepReport> report = in_.trainer.Step(batch);
  if (!report.ok()) return EndWith(report.status(), step);
  progress_.iteration = step;
  progress_.consumed_samples += in_.batches.SamplesOf(1);
  StepMetrics metrics = {.step = step,
                         .loss = report->loss,
                         .grad_norm = report->grad_norm,
                         .lr = report->lr,
                         .aux_loss = report->aux_loss,
                         .tokens = report->tokens,
                         .step_ms = watch.Milliseconds(),
                         .peak_bytes = report->peak_bytes,
                         .experts = report->experts};
  // This step began with the weights that wait to be written, so its loss is their proof.
  if (in_.checkpoints.is_taken()) CKPT_RETURN_IF_ERROR(WriteTaken(report->loss));
  return metrics;
}

Status TrainLoop::EndWith(Status failure, std::int64_t step) {
  const bool is_of_all = failure.kind() == ErrorKind::kValueMismatch;
  if (is_of_all) {
    failure = NameBadBatch(failure, {.step = step, .consumed_samples = progress_.consumed_samples},
                           in_.batches, in_.trainer, in_.world);
  } else {
    failure = std::move(failure).While(fmt::format("training step {}", step));
  }
  // Ranks that did not fail wait inside the step and cannot take part in a save.
  if (!is_of_all && in_.world.size() > 1) return failure;
  // The state that is being saved is from an earlier step and good.
  if (in_.checkpoints.is_taken()) failure.Add(in_.checkpoints.Write(std::nullopt));
  failure.Add(in_.checkpoints.Finish());
  return failure;
}

Status TrainLoop::WriteTaken(std::optional<double> next_loss) {
  const Stopwatch watch;
  CKPT_RETURN_IF_ERROR(in_.checkpoints.Write(next_loss));
  save_ms_ += watch.Milliseconds();
  return OkStatus();
}

Status TrainLoop::Evaluate(StepMetrics& metrics) {
  const Stopwatch watch;
  Result<std::optional<trainer::Evaluation>> evaluation = EvaluateBatches(
      in_.trainer, *in_.valid, in_.settings.eval_iters, [this] { return IsToldToGoOn(); });
  if (!evaluation.ok()) {
    return std::move(evaluation)
        .status()
        .While(fmt::format("evaluating after step {}", progress_.iteration));
  }
  // Asked to stop: the loss over fewer batches would be another figure.
  if (!*evaluation) return OkStatus();
  metrics.eval_loss = (*evaluation)->loss;
  metrics.eval_ms = watch.Milliseconds();
  return OkStatus();
}

bool TrainLoop::IsEvaluationDue() const {
  if (in_.valid == nullptr || in_.settings.eval_interval == 0) return false;
  return IsMultiple(progress_.iteration, in_.settings.eval_interval) ||
         progress_.iteration == in_.settings.train_iters;
}

Result<bool> TrainLoop::IsToldToGoOn() {
  return trainer::HoldsEverywhere(in_.world, !in_.is_stop_asked());
}

Result<std::optional<EndReason>> TrainLoop::ReasonToEnd() {
  // Called first, because every rank must call it.
  CKPT_ASSIGN_OR_RETURN(const bool goes_on, IsToldToGoOn());
  std::optional<EndReason> reason;
  if (progress_.iteration >= in_.settings.train_iters) {
    reason = EndReason::kFinished;
  } else if (!goes_on) {
    reason = EndReason::kStopped;
  } else if (IsMultiple(progress_.iteration, in_.settings.exit_interval)) {
    reason = EndReason::kExitInterval;
  }
  return reason;
}

Status TrainLoop::Save(std::optional<EndReason> reason) {
  const Stopwatch watch;
  // A checkpoint must not contain steps that the metrics lack.
  if (in_.observer != nullptr) CKPT_RETURN_IF_ERROR(in_.observer->Sync());
  CKPT_RETURN_IF_ERROR(in_.checkpoints.Take(progress_));
  save_ms_ += watch.Milliseconds();
  // A proof at the end takes half a step, for which a stopped run may not have the time.
  const bool is_hurried = reason == EndReason::kStopped;
  if (!in_.checkpoint_settings.save_proof || is_hurried) return WriteTaken(std::nullopt);
  // The next step will compute the loss. But if its batch cannot be read, the checkpoint must still
  // be written.
  Result<Batch> next = in_.batches.ReadStep(progress_.consumed_samples);
  CKPT_ASSIGN_OR_RETURN(const bool is_read, trainer::HoldsEverywhere(in_.world, next.ok()));
  if (!is_read) {
    CKPT_RETURN_IF_ERROR(WriteTaken(std::nullopt));
    // The next step will fail on this batch, and the writing must have ended by then.
    return in_.checkpoints.Finish();
  }
  if (!reason) {
    next_ = *std::move(next);
    return OkStatus();
  }
  const Result<trainer::Evaluation> evaluation = in_.trainer.Evaluate(*next);
  if (evaluation.ok()) return WriteTaken(evaluation->loss);
  // The state is good, although the run could not have gone on from it. All ranks find a loss that
  // is not finite; another failure may be of one rank alone, while the others wait inside.
  const bool is_of_all = evaluation.status().kind() == ErrorKind::kValueMismatch;
  return is_of_all || in_.world.size() == 1 ? WriteTaken(std::nullopt) : evaluation.status();
}

}  // namespace ckpt::train

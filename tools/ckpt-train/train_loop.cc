#include "tools/ckpt-train/train_loop.h"

#include <chrono>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "tools/ckpt-train/bad_batch.h"
#include "tools/ckpt-train/evaluation.h"
#include "trainer/comm/agreement.h"

namespace ckpt::train {
namespace {

bool IsMultiple(std::int64_t step, std::int64_t interval) {
  return interval > 0 && step % interval == 0;
}

}  // namespace

Result<LoopEnd> TrainLoop::Run() {
  std::optional<EndReason> reason;
  if (progress_.iteration >= in_.settings.train_iters) reason = EndReason::kNothingToDo;
  while (!reason) {
    CKPT_ASSIGN_OR_RETURN(StepMetrics metrics, Step());
    if (IsEvaluationDue()) {
      Result<trainer::Evaluation> evaluation =
          EvaluateBatches(in_.trainer, *in_.valid, in_.settings.eval_iters);
      if (!evaluation.ok()) {
        return std::move(evaluation)
            .status()
            .While(fmt::format("evaluating after step {}", progress_.iteration));
      }
      metrics.eval_loss = evaluation->loss;
    }
    if (in_.on_step) in_.on_step(metrics);
    if (in_.log != nullptr) CKPT_RETURN_IF_ERROR(in_.log->OnStep(metrics));
    CKPT_RETURN_IF_ERROR(in_.checkpoints.Poll());
    CKPT_ASSIGN_OR_RETURN(reason, ReasonToEnd());
    if (reason || IsMultiple(progress_.iteration, in_.checkpoint_settings.save_interval)) {
      CKPT_RETURN_IF_ERROR(Save());
    }
  }
  CKPT_RETURN_IF_ERROR(in_.checkpoints.Finish());
  if (in_.log != nullptr) CKPT_RETURN_IF_ERROR(in_.log->Sync());
  progress_.next_loss.reset();  // known after some saves only
  return LoopEnd{.progress = progress_, .reason = *reason};
}

Result<StepMetrics> TrainLoop::Step() {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  const std::int64_t step = progress_.iteration + 1;
  CKPT_ASSIGN_OR_RETURN(const std::vector<trainer::HostMicroBatch> batch,
                        in_.batches.ReadStep(progress_.consumed_samples));
  const Result<trainer::StepReport> report = in_.trainer.Step(batch);
  if (!report.ok()) {
    if (report.status().kind() != ErrorKind::kValueMismatch) return report.status();
    Status bad = NameBadBatch(report.status(),
                              {.step = step, .consumed_samples = progress_.consumed_samples},
                              in_.batches, in_.trainer, in_.world);
    // What is being saved is of earlier steps, and good.
    bad.Add(in_.checkpoints.Finish());
    return bad;
  }
  progress_.iteration = step;
  progress_.consumed_samples += in_.batches.SamplesOf(1);
  return StepMetrics{
      .step = step,
      .loss = report->loss,
      .grad_norm = report->grad_norm,
      .lr = report->lr,
      .tokens = report->tokens,
      .step_ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count()};
}

bool TrainLoop::IsEvaluationDue() const {
  if (in_.valid == nullptr) return false;
  return IsMultiple(progress_.iteration, in_.settings.eval_interval) ||
         progress_.iteration == in_.settings.train_iters;
}

Result<std::optional<EndReason>> TrainLoop::ReasonToEnd() {
  // Asked first, since every rank has to.
  CKPT_ASSIGN_OR_RETURN(const bool goes_on,
                        trainer::HoldsEverywhere(in_.world, !in_.is_stop_asked()));
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

Status TrainLoop::Save() {
  if (in_.checkpoint_settings.save.empty()) return OkStatus();
  progress_.next_loss.reset();
  if (in_.checkpoint_settings.save_proof) {
    CKPT_ASSIGN_OR_RETURN(const std::vector<trainer::HostMicroBatch> next,
                          in_.batches.ReadStep(progress_.consumed_samples));
    CKPT_ASSIGN_OR_RETURN(const trainer::Evaluation evaluation, in_.trainer.Evaluate(next));
    progress_.next_loss = evaluation.loss;
  }
  // A checkpoint never knows of steps that the metrics lack.
  if (in_.log != nullptr) CKPT_RETURN_IF_ERROR(in_.log->Sync());
  return in_.checkpoints.Save(progress_);
}

}  // namespace ckpt::train

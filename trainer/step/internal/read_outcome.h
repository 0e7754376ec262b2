// What the results of a step say: its report, or why it failed.
#ifndef CKPT_TRAINER_STEP_INTERNAL_READ_OUTCOME_H_
#define CKPT_TRAINER_STEP_INTERNAL_READ_OUTCOME_H_

#include "core/base/status.h"
#include "trainer/step/internal/grad_norm.h"
#include "trainer/step/rank_trainer.h"
#include "trainer/step/step_buffers.h"
#include "trainer/step/train_config.h"

namespace ckpt::trainer {

// `norm`, of rank `rank`, knows the parameters of bad gradients. Errors: kValueMismatch (a loss or
// a gradient is not finite; names the micro-batch or parameter), RowsDoNotFit.
[[nodiscard]] Status CheckOutcome(const StepBuffers::Results& results, const TrainConfig& config,
                                  int rank, const GradNorm& norm);

// The kUsage error of a step whose experts got more rows than they have memory for.
[[nodiscard]] Status RowsDoNotFit(const TrainConfig& config);

// The report, without what the results do not say: the step's number, its learning rate and the
// phases of other ranks.
[[nodiscard]] StepReport ReportOf(const StepBuffers::Results& results, const TrainConfig& config);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_STEP_INTERNAL_READ_OUTCOME_H_

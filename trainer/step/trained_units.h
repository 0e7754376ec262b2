// The units of a run's model, with the parameters that are not trained marked.
#ifndef CKPT_TRAINER_STEP_TRAINED_UNITS_H_
#define CKPT_TRAINER_STEP_TRAINED_UNITS_H_

#include <vector>

#include "core/base/status.h"
#include "trainer/params/param_spec.h"
#include "trainer/step/train_config.h"

namespace ckpt::trainer {

// ListUnits, with the parameters that match `config.frozen` marked as not trainable. PlanShards
// takes it.
[[nodiscard]] std::vector<UnitSpec> ListTrainedUnits(const TrainConfig& config, int expert_rank);

// Errors: kUsage (patterns of `config.frozen` that match no parameter, of which it names all; or
// all patterns together match every parameter).
Status CheckFrozen(const TrainConfig& config);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_STEP_TRAINED_UNITS_H_

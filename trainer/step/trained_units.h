// The units of a run's model as the run trains them.
#ifndef CKPT_TRAINER_STEP_TRAINED_UNITS_H_
#define CKPT_TRAINER_STEP_TRAINED_UNITS_H_

#include <vector>

#include "core/base/status.h"
#include "trainer/params/param_spec.h"
#include "trainer/step/train_config.h"

namespace ckpt::trainer {

// ListUnits, where what `config.frozen` names is not trainable: what PlanShards wants to know.
[[nodiscard]] std::vector<UnitSpec> ListTrainedUnits(const TrainConfig& config, int expert_rank);

// Errors: kUsage (a pattern of `config.frozen` that names no parameter; all of them; or together they name every one).
Status CheckFrozen(const TrainConfig& config);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_STEP_TRAINED_UNITS_H_

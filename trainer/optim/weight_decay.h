// Which parameters weight decay applies to.
#ifndef CKPT_TRAINER_OPTIM_WEIGHT_DECAY_H_
#define CKPT_TRAINER_OPTIM_WEIGHT_DECAY_H_

#include "trainer/optim/optimizer.h"
#include "trainer/params/param_spec.h"

namespace ckpt::trainer {

// All of them if the configuration says so, else those of core/training/weight_decay.h.
[[nodiscard]] bool Decays(const OptimizerConfig& config, const ParamSpec& param);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPTIM_WEIGHT_DECAY_H_

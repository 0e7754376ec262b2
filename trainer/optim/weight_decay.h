// Which parameters weight decay applies to.
#ifndef CKPT_TRAINER_OPTIM_WEIGHT_DECAY_H_
#define CKPT_TRAINER_OPTIM_WEIGHT_DECAY_H_

#include "trainer/params/param_spec.h"

namespace ckpt::trainer {

// Whether weight decay applies: the parameter has at least two dims and is not a bias.
[[nodiscard]] bool Decays(const ParamSpec& param);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPTIM_WEIGHT_DECAY_H_

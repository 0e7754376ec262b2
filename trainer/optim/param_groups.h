// Parameter groups as Megatron makes them: parameters that the optimizer treats alike.
#ifndef CKPT_TRAINER_OPTIM_PARAM_GROUPS_H_
#define CKPT_TRAINER_OPTIM_PARAM_GROUPS_H_

#include <cstddef>
#include <span>
#include <vector>

#include "trainer/params/param_spec.h"

namespace ckpt::trainer {

struct ParamGroup {
  double wd_mult = 1;  // of the configured weight decay
  double lr_mult = 1;  // of the schedule's rate
  bool is_expert_parallel = false;
  std::vector<std::size_t> indices;  // of its parameters, ascending
};

// Whether weight decay applies: the parameter has at least two dims and is no bias.
[[nodiscard]] bool Decays(const ParamSpec& param);

// The groups of the trainable parameters, empty ones left out, in the order of Megatron's chained
// optimizers: dense before expert, with decay before without.
std::vector<ParamGroup> GroupParams(std::span<const ParamSpec> params);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPTIM_PARAM_GROUPS_H_

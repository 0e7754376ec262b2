// The parameter groups of an optimizer, as Megatron-Core stores them.
#ifndef CKPT_FORMATS_TORCH_DIST_INTERNAL_PARAM_GROUPS_H_
#define CKPT_FORMATS_TORCH_DIST_INTERNAL_PARAM_GROUPS_H_

#include <vector>

#include "core/training/training_run.h"
#include "formats/pickle/writer.h"

namespace ckpt::torch_dist {

// {"param_groups": […]}.
void WriteParamGroups(const std::vector<ParamGroup>& groups, pickle::PickleWriter& pickle);

// The groups of experts, or of all other parameters, in the order of `run`. REQUIRES:
// `run.group_of` has every trained parameter.
[[nodiscard]] std::vector<ParamGroup> GroupsOf(const TrainingRun& run, bool of_experts);

// Which group a parameter belongs to is not stored. `run.group_of` keeps the embedding and the head
// alone, if these have a rate of their own.
void ForgetGroups(TrainingRun& run);

}  // namespace ckpt::torch_dist

#endif  // CKPT_FORMATS_TORCH_DIST_INTERNAL_PARAM_GROUPS_H_

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

// Which group a parameter belongs to is not stored. `run.group_of` keeps those alone of which the
// arguments tell more than their shape: the embedding and the head, if these have a rate of their
// own, and norms of queries and keys that decay. It keeps none where several groups fit.
void ForgetGroups(TrainingRun& run);

// The same of a save by Megatron-Core before 0.16: there embeddings do not decay, if an argument
// says how they are initialised.
void ForgetGroupsOfOldSave(TrainingRun& run);

}  // namespace ckpt::torch_dist

#endif  // CKPT_FORMATS_TORCH_DIST_INTERNAL_PARAM_GROUPS_H_

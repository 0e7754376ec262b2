#include "formats/torch_dist/internal/param_groups.h"

#include <cstddef>
#include <set>

#include "core/training/run_settings.h"
#include "formats/megatron/plain_pickle.h"
#include "formats/torch_dist/internal/weight_key.h"

namespace ckpt::torch_dist {
namespace {

using pickle::PickleWriter;

void WriteGroup(const ParamGroup& group, PickleWriter& pickle) {
  const megatron::WriteEntries write = {pickle};
  pickle.BeginDict();
  VisitGroup(group, write);
  VisitOptimizer(group, write);
  if (!group.sgd) write("bias_correction", true);
  write("step", group.step);
  pickle.EndDict();
}

}  // namespace

void WriteParamGroups(const std::vector<ParamGroup>& groups, PickleWriter& pickle) {
  pickle.BeginDict().Text("param_groups").BeginList();
  for (const ParamGroup& group : groups) WriteGroup(group, pickle);
  pickle.EndList().EndDict();
}

std::vector<ParamGroup> GroupsOf(const TrainingRun& run, bool of_experts) {
  std::set<std::size_t> used;
  for (const auto& [name, group] : run.group_of) {
    if (IsOfExperts(name) == of_experts) used.insert(group);
  }
  std::vector<ParamGroup> groups;
  for (const std::size_t group : used) {
    groups.push_back(run.groups.at(group));
    groups.back().is_expert_parallel = of_experts;
  }
  return groups;
}

}  // namespace ckpt::torch_dist

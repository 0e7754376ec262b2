#include "formats/torch_dist/internal/common_state.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "core/training/run_settings.h"
#include "formats/torch_dist/internal/run_keys.h"
#include "formats/torch_dist/internal/writer.h"

namespace ckpt::torch_dist {
namespace {

using pickle::PickleWriter;

void WriteBeginning(const megatron::NamedValues& args, std::int64_t iteration,
                    PickleWriter& pickle) {
  pickle.Text("args");
  megatron::WriteNamespace(args, pickle);
  pickle.Text("checkpoint_version").Float(3.0);
  pickle.Text("iteration").Int(iteration);
}

// How Megatron-Core is told to read the rest: halves of a gated projection are one tensor, and
// several optimizers are not told apart by a prefix.
void WriteContentMetadata(std::optional<std::string_view> optimizer_form, PickleWriter& pickle) {
  pickle.Text("content_metadata").BeginDict();
  if (optimizer_form) {
    pickle.Text("distrib_optim_sharding_type").Text(*optimizer_form);
    if (*optimizer_form == kFullyReshardable) {
      pickle.Text("distrib_optim_fully_reshardable_mem_efficient").Bool(false);
    }
  }
  pickle.Text("singleton_local_shards").Bool(false);
  pickle.Text("chained_optim_avoid_prefix").Bool(true);
  pickle.EndDict();
}

// Writes the settings that it visits as entries of a dictionary.
struct WriteEntries {
  PickleWriter& pickle;

  void operator()(std::string_view name, const auto& value) const {
    pickle.Text(name);
    megatron::WriteValue(value, pickle);
  }
};

void WriteGroup(const ParamGroup& group, PickleWriter& pickle) {
  const WriteEntries write = {pickle};
  pickle.BeginDict();
  VisitGroup(group, write);
  VisitOptimizer(group, write);
  if (!group.sgd) write("bias_correction", true);
  write("step", group.step);
  pickle.EndDict();
}

void WriteOptimizer(const std::vector<ParamGroup>& groups, std::string_view form,
                    PickleWriter& pickle) {
  pickle.BeginDict();
  pickle.Text("optimizer").BeginDict().Text("param_groups").BeginList();
  for (const ParamGroup& group : groups) WriteGroup(group, pickle);
  pickle.EndList().EndDict();
  pickle.Text("param_state_sharding_type").Text(form);
  pickle.EndDict();
}

bool IsOfExperts(std::string_view name) {
  return name.find(".mlp.experts.") != std::string_view::npos;
}

// The groups of experts, or of all other parameters, in the order of `run`.
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

void WriteSchedule(const RunSchedule& schedule, PickleWriter& pickle) {
  pickle.Text("opt_param_scheduler").BeginDict();
  VisitSchedule(schedule, WriteEntries{pickle});
  pickle.EndDict();
}

}  // namespace

void WriteModelState(const megatron::NamedValues& args, PickleWriter& pickle) {
  pickle.BeginDict();
  WriteBeginning(args, 0, pickle);
  WriteContentMetadata(/*optimizer_form=*/std::nullopt, pickle);
  pickle.EndDict();
}

void WriteRunState(const TrainingRun& run, ExpertOptimizer experts, std::string_view form,
                   PickleWriter& pickle) {
  pickle.BeginDict();
  WriteBeginning(run.args, run.iteration, pickle);
  pickle.Text("optimizer");
  const std::vector<ParamGroup> of_experts = GroupsOf(run, /*of_experts=*/true);
  if (experts == ExpertOptimizer::kSeparate && !of_experts.empty()) {
    pickle.BeginDict();
    pickle.Int(0);
    WriteOptimizer(GroupsOf(run, /*of_experts=*/false), form, pickle);
    pickle.Int(1);
    WriteOptimizer(of_experts, form, pickle);
    pickle.EndDict();
  } else {
    WriteOptimizer(run.groups, form, pickle);
  }
  WriteSchedule(run.schedule, pickle);
  pickle.Text(kOperations).Float(run.num_floating_point_operations);
  WriteContentMetadata(form, pickle);
  pickle.EndDict();
}

}  // namespace ckpt::torch_dist

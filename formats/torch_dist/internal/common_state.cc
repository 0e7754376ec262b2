#include "formats/torch_dist/internal/common_state.h"

#include <cstddef>
#include <cstdint>
#include <set>
#include <string_view>
#include <vector>

#include "formats/torch_dist/internal/run_keys.h"

namespace ckpt::torch_dist {
namespace {

using pickle::PickleWriter;

constexpr std::string_view kForm = "fully_reshardable";

void WriteBeginning(const megatron::NamedValues& args, std::int64_t iteration,
                    PickleWriter& pickle) {
  pickle.Text("args");
  megatron::WriteNamespace(args, pickle);
  pickle.Text("checkpoint_version").Float(3.0);
  pickle.Text("iteration").Int(iteration);
}

// How Megatron-Core is told to read the rest: halves of a gated projection are one tensor, and
// several optimizers are not told apart by a prefix.
void WriteContentMetadata(bool has_optimizer, PickleWriter& pickle) {
  pickle.Text("content_metadata").BeginDict();
  if (has_optimizer) {
    pickle.Text("distrib_optim_sharding_type").Text(kForm);
    pickle.Text("distrib_optim_fully_reshardable_mem_efficient").Bool(false);
  }
  pickle.Text("singleton_local_shards").Bool(false);
  pickle.Text("chained_optim_avoid_prefix").Bool(true);
  pickle.EndDict();
}

void WriteGroup(const ParamGroup& group, PickleWriter& pickle) {
  pickle.BeginDict();
  pickle.Text("is_expert_parallel").Bool(group.is_expert_parallel);
  pickle.Text("default_config").Bool(group.default_config);
  pickle.Text("wd_mult").Float(group.wd_mult);
  pickle.Text("lr_mult").Float(group.lr_mult);
  pickle.Text("is_decoupled_lr").Bool(group.is_decoupled_lr);
  pickle.Text("max_lr").Float(group.max_lr);
  pickle.Text("min_lr").Float(group.min_lr);
  pickle.Text("lr").Float(group.lr);
  if (group.sgd) {
    pickle.Text("momentum").Float(group.sgd->momentum);
    pickle.Text("dampening").Float(group.sgd->dampening);
    pickle.Text("nesterov").Bool(group.sgd->nesterov);
  } else {
    pickle.Text("bias_correction").Bool(true);
    pickle.Text("betas").BeginTuple().Float(group.betas[0]).Float(group.betas[1]).EndTuple();
    pickle.Text("eps").Float(group.eps);
  }
  pickle.Text("weight_decay").Float(group.weight_decay);
  pickle.Text("step").Int(group.step);
  pickle.EndDict();
}

void WriteOptimizer(const std::vector<ParamGroup>& groups, PickleWriter& pickle) {
  pickle.BeginDict();
  pickle.Text("optimizer").BeginDict().Text("param_groups").BeginList();
  for (const ParamGroup& group : groups) WriteGroup(group, pickle);
  pickle.EndList().EndDict();
  pickle.Text("param_state_sharding_type").Text(kForm);
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
  pickle.Text("max_lr").Float(schedule.max_lr);
  pickle.Text("lr_warmup_steps").Int(schedule.lr_warmup_steps);
  pickle.Text("num_steps").Int(schedule.num_steps);
  pickle.Text("lr_decay_style").Text(schedule.lr_decay_style);
  pickle.Text("lr_decay_steps").Int(schedule.lr_decay_steps);
  pickle.Text("min_lr").Float(schedule.min_lr);
  pickle.Text("start_wd").Float(schedule.start_wd);
  pickle.Text("end_wd").Float(schedule.end_wd);
  pickle.Text("wd_incr_style").Text(schedule.wd_incr_style);
  pickle.Text("wd_incr_steps").Int(schedule.wd_incr_steps);
  pickle.EndDict();
}

}  // namespace

void WriteModelState(const megatron::NamedValues& args, PickleWriter& pickle) {
  pickle.BeginDict();
  WriteBeginning(args, 0, pickle);
  WriteContentMetadata(/*has_optimizer=*/false, pickle);
  pickle.EndDict();
}

void WriteRunState(const TrainingRun& run, ExpertOptimizer experts, PickleWriter& pickle) {
  pickle.BeginDict();
  WriteBeginning(run.args, run.iteration, pickle);
  pickle.Text("optimizer");
  const std::vector<ParamGroup> of_experts = GroupsOf(run, /*of_experts=*/true);
  if (experts == ExpertOptimizer::kSeparate && !of_experts.empty()) {
    pickle.BeginDict();
    pickle.Int(0);
    WriteOptimizer(GroupsOf(run, /*of_experts=*/false), pickle);
    pickle.Int(1);
    WriteOptimizer(of_experts, pickle);
    pickle.EndDict();
  } else {
    WriteOptimizer(run.groups, pickle);
  }
  WriteSchedule(run.schedule, pickle);
  pickle.Text(kOperations).Float(run.num_floating_point_operations);
  WriteContentMetadata(/*has_optimizer=*/true, pickle);
  pickle.EndDict();
}

}  // namespace ckpt::torch_dist

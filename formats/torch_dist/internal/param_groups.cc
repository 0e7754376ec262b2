#include "formats/torch_dist/internal/param_groups.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/training/run_settings.h"
#include "formats/megatron/plain_pickle.h"
#include "formats/torch_dist/internal/run_keys.h"
#include "formats/torch_dist/internal/weight_key.h"

namespace ckpt::torch_dist {
namespace {

// The weights to which decoupled_lr applies.
constexpr std::array<std::string_view, 2> kDecoupled = {kEmbeddingKey, kHeadKey};

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

void ForgetGroups(TrainingRun& run) {
  std::vector<std::pair<std::string, std::size_t>> trained;
  trained.swap(run.group_of);
  run.others_by_decay = false;
  const auto asked =
      std::ranges::find(run.args, "decoupled_lr", &megatron::NamedValues::value_type::first);
  if (asked == run.args.end()) return;
  if (asked->second.AsFloat() == nullptr && asked->second.AsInt() == nullptr) return;
  const auto own = std::ranges::find_if(run.groups, &ParamGroup::has_own_rate);
  if (std::ranges::count_if(run.groups, &ParamGroup::has_own_rate) != 1) return;
  run.others_by_decay = true;
  for (auto& [name, group] : trained) {
    if (std::ranges::find(kDecoupled, name) == kDecoupled.end()) continue;
    run.group_of.emplace_back(std::move(name), own - run.groups.begin());
  }
}

}  // namespace ckpt::torch_dist

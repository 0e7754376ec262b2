#include "formats/torch_dist/internal/param_groups.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/training/run_settings.h"
#include "core/training/weight_decay.h"
#include "formats/megatron/plain_pickle.h"
#include "formats/megatron/stored_settings.h"
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
  for (const auto& [name, value] : megatron::OthersOf(group)) write(name, value);
  pickle.EndDict();
}

bool HasNumber(const TrainingRun& run, std::string_view name) {
  const layout::Value* const value = FindArg(run, name);
  return value != nullptr && (value->AsFloat() != nullptr || value->AsInt() != nullptr);
}

bool DecaysNorms(const TrainingRun& run) {
  return DecaysQueryKeyNorms([&](std::string_view name) { return FindArg(run, name); });
}

bool SparesEmbeddings(const TrainingRun& run) {
  return HasNumber(run, "embedding_init_method_std");
}

// The first group that fits, which others repeat for their parameters: each of several optimizers
// has its own. Nothing if two that fit differ.
template <typename Fits>
std::optional<std::size_t> OnlyGroup(const TrainingRun& run, const Fits& fits) {
  std::optional<std::size_t> only;
  for (std::size_t g = 0; g < run.groups.size(); ++g) {
    if (!std::invoke(fits, run.groups[g])) continue;
    if (only && !AreOneWithoutExperts(run.groups[*only], run.groups[g])) return std::nullopt;
    if (!only) only = g;
  }
  return only;
}

enum class Embeddings : std::uint8_t { kDecay, kSpared };

void KeepTold(TrainingRun& run, Embeddings embeddings) {
  std::vector<std::pair<std::string, std::size_t>> trained;
  trained.swap(run.group_of);
  const auto keep = [&](std::optional<std::size_t> group, const auto& is_of) {
    if (!group) return;
    for (const auto& [name, forgotten] : trained) {
      if (is_of(name)) run.group_of.emplace_back(name, *group);
    }
  };
  const auto has_own_rate = [is_decoupled = HasNumber(run, "decoupled_lr")](std::string_view name) {
    return is_decoupled && std::ranges::find(kDecoupled, name) != kDecoupled.end();
  };
  keep(OnlyGroup(run, &ParamGroup::has_own_rate), has_own_rate);
  const auto of_decay = [&](bool decays) {
    return OnlyGroup(run, [&](const ParamGroup& group) {
      return !group.has_own_rate() && (group.wd_mult != 0) == decays;
    });
  };
  if (DecaysNorms(run)) keep(of_decay(true), &IsQueryKeyNorm);
  if (embeddings == Embeddings::kSpared) {
    keep(of_decay(false), [&](std::string_view name) {
      return name.find("embedding") != name.npos && !has_own_rate(name);
    });
  }
  run.others_by_decay = !run.group_of.empty();
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

void ForgetGroups(TrainingRun& run) { KeepTold(run, Embeddings::kDecay); }

void ForgetGroupsOfOldSave(TrainingRun& run) {
  KeepTold(run, SparesEmbeddings(run) ? Embeddings::kSpared : Embeddings::kDecay);
}

}  // namespace ckpt::torch_dist

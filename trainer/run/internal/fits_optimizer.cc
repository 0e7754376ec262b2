#include "trainer/run/internal/fits_optimizer.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "converters/families/known_namings.h"
#include "converters/verbs/model_source.h"
#include "converters/verbs/optimizer_groups.h"
#include "trainer/run/internal/describe_run.h"

namespace ckpt::train {
namespace {

constexpr std::string_view kWeightsAlone = "--set finetune=true takes the weights alone";

// What every group must have in common, under torch's and Megatron's names.
struct Setting {
  std::string_view name;
  double (*of)(const ParamGroup& group);
};
constexpr std::array<Setting, 6> kCommon = {
    {{"max_lr", [](const ParamGroup& group) { return group.max_lr; }},
     {"min_lr", [](const ParamGroup& group) { return group.min_lr; }},
     {"beta1", [](const ParamGroup& group) { return group.betas[0]; }},
     {"beta2", [](const ParamGroup& group) { return group.betas[1]; }},
     {"eps", [](const ParamGroup& group) { return group.eps; }},
     {"momentum", [](const ParamGroup& group) { return group.sgd ? group.sgd->momentum : 0; }}}};

// What the trainer's SGD does not do.
constexpr std::array<Setting, 2> kOfSgd = {
    {{"dampening", [](const ParamGroup& group) { return group.sgd ? group.sgd->dampening : 0; }},
     {"nesterov",
      [](const ParamGroup& group) { return group.sgd && group.sgd->nesterov ? 1.0 : 0.0; }}}};

// What torch's own schedulers remember in a group. Their curve is not stored in any case.
constexpr std::array<std::string_view, 4> kOfScheduler = {"max_lr", "min_lr", "base_momentum",
                                                          "max_momentum"};

// Whether a member that belongs to another program changes what an update does. Texts are labels.
bool ChangesUpdates(std::string_view name, const layout::Value& value) {
  if (IsHowComputed(name) || std::ranges::find(kOfScheduler, name) != kOfScheduler.end()) {
    return false;
  }
  return value.AsBool() != nullptr || value.AsInt() != nullptr || value.AsFloat() != nullptr;
}

bool IsSpared(const ParamGroup& group) { return group.wd_mult == 0 || group.weight_decay == 0; }

// One of the group's parameters; nothing if the run names none.
std::string_view ParameterOf(const TrainingRun& run, std::size_t group) {
  const auto found =
      std::ranges::find(run.group_of, group, &std::pair<std::string, std::size_t>::second);
  return found == run.group_of.end() ? std::string_view() : found->first;
}

}  // namespace

bool AllDecay(const std::vector<ParamGroup>& groups) {
  return !groups.empty() && std::ranges::none_of(groups, &IsSpared);
}

Status CheckGroupsAreAlike(const TrainingState& state) {
  const std::vector<ParamGroup>& groups = state.run.groups;
  Status differences;
  const auto refuse = [&](std::size_t group, std::string_view name, std::string expected,
                          std::string_view actual) {
    differences.Add(Error(ErrorKind::kUnsupported,
                          fmt::format("the trainer does not do what parameter group {} of {} says "
                                      "of {}",
                                      group, groups.size(), name))
                        .File(state.weights.checkpoint->path.string())
                        .Tensor(ParameterOf(state.run, group))
                        .Expected(std::move(expected))
                        .Actual(fmt::format("{}={}", name, actual)));
  };
  const auto check = [&](std::size_t group, std::string_view name, double expected, double actual) {
    if (expected == actual) return;
    refuse(group, name, fmt::format("{}={}", name, expected), fmt::format("{}", actual));
  };
  std::optional<double> decay;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (const Setting& setting : kCommon) {
      check(g, setting.name, setting.of(groups.front()), setting.of(groups[g]));
    }
    check(g, "lr_mult", 1, groups[g].lr_mult);
    for (const Setting& setting : kOfSgd) check(g, setting.name, 0, setting.of(groups[g]));
    for (const auto& [name, value] : groups[g].others) {
      if (ChangesUpdates(name, value)) refuse(g, name, "", layout::FormatValue(value));
    }
    if (IsSpared(groups[g])) continue;
    check(g, "wd_mult", 1, groups[g].wd_mult);
    if (!decay) decay = groups[g].weight_decay;
    check(g, "weight_decay", *decay, groups[g].weight_decay);
  }
  return std::move(differences).Hint(std::string(kWeightsAlone));
}

Status CheckDecaysAlike(const TrainingState& state, const trainer::TrainConfig& config) {
  if (std::ranges::all_of(state.run.groups, &IsSpared)) return OkStatus();  // no decay at all
  CKPT_ASSIGN_OR_RETURN(const OptimizerGroups groups, OptimizerGroups::Of(state));
  CKPT_ASSIGN_OR_RETURN(const ModelView updated,
                        ViewModel(state.updated, kTrainerNaming, {}, MixedDtypes::kWiden));
  const std::set<std::string> decayed = DecayedParameters(config);
  const auto say = [](bool decays) { return decays ? "weight decay" : "no weight decay"; };
  OtherParameters differences;
  bool is_spared_here = false;
  for (std::size_t t = 0; t < updated.tensors.size(); ++t) {
    if (updated.derived[t]) continue;
    const TargetTensor& tensor = updated.tensors[t];
    CKPT_ASSIGN_OR_RETURN(const std::optional<std::size_t> group,
                          groups.Find(tensor, updated.recipes[t]));
    if (!group) continue;
    const bool decays = !IsSpared(groups.groups()[*group]);
    const bool decays_here = decayed.contains(tensor.key);
    if (decays == decays_here) continue;
    is_spared_here |= !decays_here;
    differences.Add(Error(ErrorKind::kUnsupported,
                          "the parameter's group says of weight decay what the trainer does not do")
                        .File(state.weights.checkpoint->path.string())
                        .Tensor(tensor.key)
                        .Expected(say(decays_here))
                        .Actual(say(decays)));
  }
  const bool would_all = AllDecay(state.run.groups) && is_spared_here;
  return std::move(differences)
      .Finish()
      .Hint(would_all ? fmt::format("--set decay_all=true lets all decay; {}", kWeightsAlone)
                      : std::string(kWeightsAlone));
}

}  // namespace ckpt::train

#include "formats/fsdp2/internal/read_run.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/endian.h"
#include "core/base/quote.h"
#include "core/base/warning.h"
#include "core/checkpoint/read.h"
#include "core/layout/find_value.h"
#include "core/training/run_settings.h"
#include "core/training/stored_values.h"
#include "formats/fsdp2/internal/run_keys.h"
#include "formats/megatron/object_fields.h"
#include "formats/megatron/schedule.h"
#include "formats/megatron/stored_settings.h"

namespace ckpt::fsdp2 {
namespace {

using layout::Configuration;
using megatron::ObjectFields;

constexpr std::array<std::string_view, 2> kMomentsOfAdam = {"exp_avg", "exp_avg_sq"};
constexpr std::string_view kMomentOfSgd = "momentum_buffer";

bool IsMoment(std::string_view field) {
  return field == kMomentOfSgd || std::ranges::find(kMomentsOfAdam, field) != kMomentsOfAdam.end();
}

// What the checkpoint holds of the optimizer's state, by the names of the parameters.
struct OptimizerState {
  std::map<std::string, std::map<std::string, std::string>> moments;  // field → key → parameter
  std::map<std::string, const GlobalTensor*> steps;
};

Result<OptimizerState> FindState(const CheckpointIndex& index, std::string_view optimizer) {
  OptimizerState state;
  Status other;
  for (const GlobalTensor& tensor : index.tensors()) {
    const auto key = ParseOptimizerKey(tensor.key);
    if (!key || key->optimizer != optimizer || key->section != kState) continue;
    if (key->field == kStep) {
      state.steps[std::string(key->owner)] = &tensor;
    } else if (IsMoment(key->field)) {
      state.moments[std::string(key->field)][tensor.key] = key->owner;
    } else {
      other.Add(Error(ErrorKind::kUnsupported,
                      "the optimizer keeps something that neither Adam nor SGD keeps")
                    .Tensor(tensor.key)
                    .Hint(kTakeWeightsAlone));
    }
  }
  if (!other.ok()) return other;
  return state;
}

// Every parameter with a moment must have all of them, and Adam's the number of its updates.
Status CheckWhole(const OptimizerState& state, std::string_view optimizer) {
  std::set<std::string> trained;
  for (const auto& [name, tensors] : state.moments) {
    for (const auto& [key, parameter] : tensors) trained.insert(parameter);
  }
  for (const auto& [parameter, tensor] : state.steps) trained.insert(parameter);
  Status absent;
  const auto lacks = [&](const std::string& parameter, std::string_view field) {
    absent.Add(Error(ErrorKind::kMissing, "a trained weight has no moment of the optimizer")
                   .Tensor(fmt::format("{}{}{}.{}", optimizer, kState, parameter, field)));
  };
  const bool is_sgd = state.moments.contains(std::string(kMomentOfSgd));
  std::set<std::string> fields;
  for (const auto& [name, tensors] : state.moments) fields.insert(name);
  if (!is_sgd) fields.insert(kMomentsOfAdam.begin(), kMomentsOfAdam.end());
  for (const std::string& field : fields) {
    std::set<std::string> present;
    if (const auto found = state.moments.find(field); found != state.moments.end()) {
      for (const auto& [key, parameter] : found->second) present.insert(parameter);
    }
    for (const std::string& parameter : trained) {
      if (!present.contains(parameter)) lacks(parameter, field);
    }
  }
  if (!is_sgd) {
    for (const std::string& parameter : trained) {
      if (!state.steps.contains(parameter)) lacks(parameter, kStep);
    }
  }
  return absent;
}

// How often all parameters were updated; nothing if no parameter counts.
Result<std::optional<std::int64_t>> ReadSteps(const CheckpointSource& source,
                                              const OptimizerState& state) {
  std::optional<std::int64_t> updates;
  for (const auto& [parameter, tensor] : state.steps) {
    CKPT_ASSIGN_OR_RETURN(const double number, ReadStoredNumber(source, *tensor));
    CKPT_ASSIGN_OR_RETURN(const std::int64_t own, megatron::CountOf(number, tensor->key));
    if (!updates) updates = own;
    if (own == *updates) continue;
    return Error(ErrorKind::kUnsupported, "parameters were updated unequally often")
        .Tensor(tensor->key)
        .Expected(fmt::format("{} updates", *updates))
        .Actual(fmt::format("{}", own));
  }
  return updates;
}

// `prefix` is that of torch's settings, `rest` that of what torch does not keep; empty: none is
// stored.
Result<ParamGroup> ReadGroup(const CheckpointSource& source, const std::string& prefix,
                             const std::string& rest, SettingNames& said) {
  const ObjectFields fields(source, prefix);
  ParamGroup group;
  CKPT_RETURN_IF_ERROR(megatron::ReadOptimizer(fields, group, said));
  // A rate may be a tensor, so that a captured graph can read it.
  const auto read_rate = [&](std::string_view name, std::string_view setting,
                             double& rate) -> Status {
    const GlobalTensor* const tensor = source.index().FindTensor(fmt::format("{}{}", prefix, name));
    if (tensor == nullptr && !fields.Has(name)) return OkStatus();
    said.insert(fmt::format("{}{}", kOfGroups, setting));
    if (tensor == nullptr) return fields.Read(name, rate);
    CKPT_ASSIGN_OR_RETURN(rate, ReadStoredNumber(source, *tensor));
    return OkStatus();
  };
  CKPT_RETURN_IF_ERROR(read_rate("lr", "lr", group.lr));
  group.max_lr = group.lr;
  CKPT_RETURN_IF_ERROR(read_rate("initial_lr", "max_lr", group.max_lr));
  if (rest.empty()) return group;
  CKPT_RETURN_IF_ERROR(megatron::ReadGroup(ObjectFields(source, rest), group, said));
  return group;
}

struct Groups {
  std::vector<ParamGroup> groups;
  std::vector<std::pair<std::string, std::size_t>> group_of;
  std::string settings;  // prefix of the first group's
  SettingNames said;
};

std::string OwnPrefix(std::string_view number) { return fmt::format("{}{}.", kRunGroups, number); }

// Whether a group's rest is stored.
bool HasRest(const CheckpointSource& source, std::string_view number) {
  return ObjectFields(source, OwnPrefix(number)).Has("wd_mult");
}

// Groups by number, each with the names of its parameters.
Result<Groups> ReadNumbered(const CheckpointSource& source, const std::string& base,
                            const std::set<std::string>& numbers) {
  std::vector<std::string> sorted(numbers.begin(), numbers.end());
  std::ranges::sort(sorted, {},
                    [](const std::string& number) { return std::pair(number.size(), number); });
  Groups all;
  std::set<std::string> seen;
  for (const std::string& number : sorted) {
    const std::string prefix = fmt::format("{}{}.", base, number);
    CKPT_ASSIGN_OR_RETURN(
        ParamGroup group,
        ReadGroup(source, prefix, HasRest(source, number) ? OwnPrefix(number) : "", all.said));
    std::vector<std::string> names;
    Status read = ObjectFields(source, prefix).Read(kParams, names);
    if (!read.ok()) {
      return std::move(read).Hint(
          "parameters are numbered, as in an optimizer's own state_dict: save what "
          "torch.distributed.checkpoint.state_dict.get_state_dict returns");
    }
    for (std::string& name : names) {
      if (!seen.insert(name).second) {
        return Error(ErrorKind::kBadMetadata, "a parameter is in two groups of the optimizer")
            .Tensor(fmt::format("{}{}", prefix, kParams))
            .Actual(Quote(name));
      }
      all.group_of.emplace_back(std::move(name), all.groups.size());
    }
    if (all.groups.empty()) all.settings = prefix;
    all.groups.push_back(group);
  }
  return all;
}

// Settings under the name of every parameter. Those of equal settings are one group.
Result<Groups> ReadFlat(const CheckpointSource& source, const std::string& base,
                        const std::set<std::string>& parameters) {
  std::map<std::string, std::string> rest_of;
  for (std::size_t g = 0; HasRest(source, std::to_string(g)); ++g) {
    const std::string prefix = OwnPrefix(std::to_string(g));
    std::vector<std::string> names;
    CKPT_RETURN_IF_ERROR(ObjectFields(source, prefix).Read(kParams, names));
    for (const std::string& name : names) rest_of[name] = prefix;
  }
  Groups all;
  for (const std::string& parameter : parameters) {
    const std::string prefix = fmt::format("{}{}.", base, parameter);
    CKPT_ASSIGN_OR_RETURN(const ParamGroup group,
                          ReadGroup(source, prefix, rest_of[parameter], all.said));
    const auto found = std::ranges::find(all.groups, group);
    all.group_of.emplace_back(parameter, static_cast<std::size_t>(found - all.groups.begin()));
    if (all.groups.empty()) all.settings = prefix;
    if (found == all.groups.end()) all.groups.push_back(group);
  }
  return all;
}

Result<Groups> ReadGroups(const CheckpointSource& source, const std::string& optimizer) {
  std::set<std::string> owners;
  const auto add = [&](std::string_view text) {
    const auto key = ParseOptimizerKey(text);
    if (key && key->optimizer == optimizer && key->section == kGroups) owners.emplace(key->owner);
  };
  for (const ObjectEntry& object : source.index().objects()) add(object.key);
  for (const GlobalTensor& tensor : source.index().tensors()) add(tensor.key);
  const std::string base = fmt::format("{}{}", optimizer, kGroups);
  if (owners.empty()) {
    return Error(ErrorKind::kMissing, "nothing says the settings of the optimizer")
        .Expected(fmt::format("objects {}*", base));
  }
  const bool are_numbered = std::ranges::all_of(owners, &IsNumber);
  return are_numbered ? ReadNumbered(source, base, owners) : ReadFlat(source, base, owners);
}

// Torch has no factor for a group's decay: where some groups decay and others do not, these are it.
void TellDecayApart(const CheckpointSource& source, std::vector<ParamGroup>& groups) {
  if (HasRest(source, "0")) return;
  const bool any_decays =
      std::ranges::any_of(groups, [](const ParamGroup& group) { return group.weight_decay != 0; });
  for (ParamGroup& group : groups) {
    group.wd_mult = any_decays && group.weight_decay == 0 ? 0 : 1;
  }
}

// The optimizer's settings as arguments, for a run that stores none.
Result<Configuration> ArgsOf(const CheckpointSource& source, const Groups& groups) {
  const ObjectFields fields(source, groups.settings);
  const ParamGroup& first = groups.groups.front();
  double weight_decay = 0;
  for (const ParamGroup& group : groups.groups) {
    weight_decay = std::max(weight_decay, group.weight_decay);
  }
  Configuration args = {{"optimizer", first.sgd ? "sgd" : "adam"},
                        {"lr", first.max_lr},
                        {"weight_decay", weight_decay}};
  if (first.sgd) {
    args["sgd_momentum"] = first.sgd->momentum;
    return args;
  }
  // Before torch 2.8 AdamW said nothing of it.
  bool is_decoupled = true;
  CKPT_RETURN_IF_ERROR(fields.Read("decoupled_weight_decay", is_decoupled));
  args["adam_beta1"] = first.betas[0];
  args["adam_beta2"] = first.betas[1];
  args["adam_eps"] = first.eps;
  args["decoupled_weight_decay"] = is_decoupled;
  return args;
}

// What a run of this program stores beside the optimizer.
Status ReadOwnProgress(const CheckpointSource& source, const Configuration& args, RunDetail detail,
                       StoredRun& into) {
  TrainingRun& run = into.run;
  run.args.assign(args.begin(), args.end());
  const ObjectFields own(source, kRunState);
  for (const std::string_view name : {kIteration, kSamples, kOperations}) {
    if (own.Has(name)) into.said.emplace(name);
  }
  CKPT_RETURN_IF_ERROR(own.Read(kIteration, run.iteration));
  CKPT_RETURN_IF_ERROR(own.Read(kSamples, run.consumed_samples));
  CKPT_RETURN_IF_ERROR(own.Read(kOperations, run.num_floating_point_operations));
  if (const auto seed = layout::FindInt(args, "seed")) {
    run.seed = static_cast<std::uint64_t>(*seed);
  }
  CKPT_RETURN_IF_ERROR(
      megatron::ReadSchedule(ObjectFields(source, kRunSchedule), run.schedule, into.said));
  const std::string position = fmt::format("{}num_steps", kRunSchedule);
  CKPT_ASSIGN_OR_RETURN(run.schedule.num_steps, ReadStoredInteger(source, position));
  if (detail == RunDetail::kWhole) return OkStatus();
  return megatron::CheckSchedule(run, args, position);
}

// A scheduler's state does not say how the rate goes on: its curve is the program's. For other
// formats, and for a trainer, the rate stays at the first one.
void WarnOfChangedRate(StoredRun& stored) {
  const RunSchedule& schedule = stored.run.schedule;
  const bool is_constant = schedule.lr_decay_style == RunSchedule().lr_decay_style;
  if (!is_constant || schedule.lr_warmup_steps != 0) return;
  for (const ParamGroup& group : stored.run.groups) {
    if (group.lr == group.max_lr * group.lr_mult) continue;
    Problem warning =
        Warning(ErrorKind::kUnsupported,
                fmt::format("a scheduler changed the learning rate from {} to {}, and the "
                            "checkpoint does not say how it goes on",
                            group.max_lr, group.lr));
    warning.hint = fmt::format("the target's schedule stays at {}", group.max_lr);
    stored.warnings.push_back(std::move(warning));
    return;
  }
}

// The only optimizer of the checkpoint.
Result<std::string> FindOptimizer(const CheckpointIndex& index) {
  const std::set<std::string> optimizers = OptimizersIn(index);
  if (optimizers.size() == 1) return *optimizers.begin();
  if (optimizers.empty()) {
    return Error(ErrorKind::kMissing,
                 "the checkpoint holds no optimizer whose parameters have names");
  }
  std::vector<std::string> quoted;
  quoted.reserve(optimizers.size());
  for (const std::string& optimizer : optimizers) quoted.push_back(Quote(optimizer + "state"));
  return Error(ErrorKind::kUnsupported, "the checkpoint holds several optimizers")
      .Expected("one")
      .Actual(fmt::format("{}", fmt::join(quoted, ", ")));
}

}  // namespace

Result<Configuration> ReadArgs(const CheckpointSource& source) {
  return ReadStoredMembers(source, kRunArgs, "");
}

bool HoldsRun(const CheckpointIndex& index) { return !OptimizersIn(index).empty(); }

Result<OptimizerTensors> FindTensors(const CheckpointIndex& index) {
  CKPT_ASSIGN_OR_RETURN(const std::string optimizer, FindOptimizer(index));
  CKPT_ASSIGN_OR_RETURN(OptimizerState state, FindState(index, optimizer));
  CKPT_RETURN_IF_ERROR(CheckWhole(state, optimizer));
  OptimizerTensors found;
  for (auto& [name, tensors] : state.moments) {
    found.moments.push_back({.name = name, .weight_of = std::move(tensors)});
  }
  return found;
}

Result<StoredRun> ReadRun(const CheckpointSource& source, RunDetail detail) {
  CKPT_ASSIGN_OR_RETURN(OptimizerTensors tensors, FindTensors(source.index()));
  CKPT_ASSIGN_OR_RETURN(const std::string optimizer, FindOptimizer(source.index()));
  CKPT_ASSIGN_OR_RETURN(const OptimizerState state, FindState(source.index(), optimizer));
  StoredRun stored{std::move(tensors)};
  TrainingRun& run = stored.run;
  CKPT_ASSIGN_OR_RETURN(Groups groups, ReadGroups(source, optimizer));
  TellDecayApart(source, groups.groups);
  CKPT_ASSIGN_OR_RETURN(const std::optional<std::int64_t> counted, ReadSteps(source, state));
  std::int64_t updates = counted.value_or(0);
  if (!counted) {
    const std::string key = fmt::format("{}{}", kRunState, kUpdates);
    if (source.index().FindObject(key) == nullptr) {
      return Error(ErrorKind::kMissing,
                   "nothing says how often the optimizer has updated: its own state does not count")
          .Expected(key)
          .Hint(kTakeWeightsAlone);
    }
    CKPT_ASSIGN_OR_RETURN(updates, ReadStoredInteger(source, key));
  }
  run.groups = groups.groups;
  stored.said = std::move(groups.said);
  for (ParamGroup& group : run.groups) group.step = updates;
  run.group_of = groups.group_of;
  CKPT_ASSIGN_OR_RETURN(const Configuration args, ReadArgs(source));
  stored.decoded = {fmt::format("{}{}", optimizer, kGroups)};
  if (!args.empty()) {
    CKPT_RETURN_IF_ERROR(ReadOwnProgress(source, args, detail, stored));
    stored.decoded.emplace_back(kRunState);
    if (!ObjectFields(source, kRunState).Has(kOwnScheduler)) {
      stored.decoded.emplace_back(kScheduler);
    }
  } else {
    CKPT_ASSIGN_OR_RETURN(const Configuration made, ArgsOf(source, groups));
    run.args.assign(made.begin(), made.end());
    run.iteration = updates;
    run.schedule.max_lr = run.groups.front().max_lr;
  }
  WarnOfChangedRate(stored);
  for (const auto& [parameter, tensor] : state.steps) stored.decoded_tensors.push_back(tensor->key);
  return stored;
}

}  // namespace ckpt::fsdp2

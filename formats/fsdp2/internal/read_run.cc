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

#include "core/base/quote.h"
#include "core/base/warning.h"
#include "core/checkpoint/read.h"
#include "core/json/json_reader.h"
#include "core/layout/find_value.h"
#include "core/training/run_settings.h"
#include "core/training/stored_values.h"
#include "formats/fsdp2/internal/read_groups.h"
#include "formats/fsdp2/internal/run_keys.h"
#include "formats/megatron/object_fields.h"
#include "formats/megatron/schedule.h"
#include "formats/megatron/stored_settings.h"

namespace ckpt::fsdp2 {
namespace {

using layout::Configuration;
using megatron::ObjectFields;

constexpr std::array<std::string_view, 2> kMomentsOfAdam = {"exp_avg", "exp_avg_sq"};

bool IsMoment(std::string_view field) {
  return field == kMomentOfSgd || std::ranges::find(kMomentsOfAdam, field) != kMomentsOfAdam.end();
}

// What the checkpoint holds of the optimizer's state, by the names of the parameters.
struct OptimizerState {
  std::map<std::string, std::map<std::string, std::string>> moments;  // field → key → parameter
  std::map<std::string, std::string> steps;                           // parameter → key
};

// Adds the counts of programs that count in Python's own numbers.
void AddStepsOfPython(const CheckpointIndex& index, std::string_view optimizer,
                      OptimizerState& state) {
  for (const auto& [field, tensors] : state.moments) {
    for (const auto& [key, parameter] : tensors) {
      std::string step = fmt::format("{}{}{}.{}", optimizer, kState, parameter, kStep);
      if (index.FindObject(step) != nullptr) state.steps.try_emplace(parameter, std::move(step));
    }
  }
}

Result<OptimizerState> FindState(const CheckpointIndex& index, std::string_view optimizer) {
  OptimizerState state;
  Status other;
  for (const GlobalTensor& tensor : index.tensors()) {
    const auto key = ParseOptimizerKey(tensor.key);
    if (!key || key->optimizer != optimizer || key->section != kState) continue;
    if (key->field == kStep) {
      state.steps[std::string(key->owner)] = tensor.key;
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
  AddStepsOfPython(index, optimizer, state);
  return state;
}

// The parameters for which the optimizer keeps something.
std::set<std::string> TrainedIn(const OptimizerState& state) {
  std::set<std::string> trained;
  for (const auto& [name, tensors] : state.moments) {
    for (const auto& [key, parameter] : tensors) trained.insert(parameter);
  }
  for (const auto& [parameter, key] : state.steps) trained.insert(parameter);
  return trained;
}

// Every parameter with a moment must have all of them, and Adam's the number of its updates.
Status CheckWhole(const OptimizerState& state, std::string_view optimizer) {
  const std::set<std::string> trained = TrainedIn(state);
  Status absent;
  const auto lacks = [&](const std::string& parameter, std::string_view field) {
    absent.Add(Error(ErrorKind::kMissing, "a trained weight has no moment of the optimizer")
                   .Tensor(fmt::format("{}{}{}.{}", optimizer, kState, parameter, field)));
  };
  const auto of_sgd = state.moments.find(std::string(kMomentOfSgd));
  const bool is_sgd = of_sgd != state.moments.end();
  if (is_sgd && state.moments.size() > 1) {
    const std::string& key = of_sgd->second.begin()->first;
    const auto of_other = std::ranges::find_if(
        state.moments, [](const auto& moment) { return moment.first != kMomentOfSgd; });
    return Error(ErrorKind::kUnsupported, "parameters have optimizers of different kinds")
        .Tensor(key)
        .Expected("the same moments of all parameters")
        .Actual(fmt::format("{} of some, {} of others", kMomentOfSgd, of_other->first))
        .Hint(kTakeWeightsAlone);
  }
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

// What stands where a number should, for messages.
std::string NoNumber(const JsonCursor& value) {
  if (const Result<std::string> text = value.Text(); text.ok()) {
    return "the text " + Quote(*text, 60);
  }
  return std::string(JsonKindName(value.kind()));
}

// How often a parameter was updated: a tensor of one number, or a number of Python's or numpy's.
Result<std::int64_t> ReadStep(const CheckpointSource& source, const std::string& key) {
  if (const GlobalTensor* const tensor = source.index().FindTensor(key)) {
    CKPT_ASSIGN_OR_RETURN(const double number, ReadStoredNumber(source, *tensor));
    return megatron::CountOf(number, key);
  }
  CKPT_ASSIGN_OR_RETURN(const RenderedObject object,
                        source.ReadObject(*source.index().FindObject(key)));
  CKPT_ASSIGN_OR_RETURN(const JsonDocument json, JsonDocument::Parse(object.json, key));
  const JsonKind kind = json.root().kind();
  if (kind == JsonKind::kObject) {
    const std::size_t name = key.rfind('.') + 1;
    std::int64_t count = 0;
    CKPT_RETURN_IF_ERROR(ObjectFields(source, key.substr(0, name)).Read(key.substr(name), count));
    return count;
  }
  if (kind != JsonKind::kInt && kind != JsonKind::kUint && kind != JsonKind::kFloat) {
    return Error(ErrorKind::kBadMetadata, "how often a parameter was updated is no number")
        .Tensor(key)
        .Expected("a number")
        .Actual(NoNumber(json.root()));
  }
  Result<std::int64_t> count = megatron::CountOf(json.root(), key);
  if (!count.ok()) return std::move(count).status().Tensor(key);
  return count;
}

// How often all parameters were updated; nothing if no parameter counts.
Result<std::optional<std::int64_t>> ReadSteps(const CheckpointSource& source,
                                              const OptimizerState& state) {
  std::optional<std::int64_t> updates;
  for (const auto& [parameter, key] : state.steps) {
    CKPT_ASSIGN_OR_RETURN(const std::int64_t own, ReadStep(source, key));
    if (!updates) updates = own;
    if (own == *updates) continue;
    return Error(ErrorKind::kUnsupported, "parameters were updated unequally often")
        .Tensor(key)
        .Expected(fmt::format("{} updates", *updates))
        .Actual(fmt::format("{}", own))
        .Hint(kTakeWeightsAlone);
  }
  return updates;
}

// The optimizer's settings as arguments, for a run that stores none.
Configuration ArgsOf(const StoredRun& stored) {
  const ParamGroup& first = stored.run.groups.front();
  Configuration args = {{"optimizer", first.sgd ? "sgd" : "adam"},
                        {"lr", first.max_lr},
                        {"weight_decay", LargestDecay(stored.run.groups)}};
  if (first.sgd) {
    args["sgd_momentum"] = first.sgd->momentum;
    return args;
  }
  args["adam_beta1"] = first.betas[0];
  args["adam_beta2"] = first.betas[1];
  args["adam_eps"] = first.eps;
  args["decoupled_weight_decay"] = stored.decouples_decay.value_or(true);
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
  CKPT_RETURN_IF_ERROR(megatron::ReadSchedule(ObjectFields(source, kRunSchedule), into));
  const std::string position = fmt::format("{}num_steps", kRunSchedule);
  CKPT_ASSIGN_OR_RETURN(run.schedule.num_steps, ReadStoredInteger(source, position));
  if (detail == RunDetail::kWhole) return OkStatus();
  return megatron::CheckSchedule(run, args, position);
}

// A scheduler's state does not say how the rate goes on: its curve is the program's. For other
// formats, and for a trainer, the rate stays at the first one.
void WarnOfScheduler(StoredRun& stored, bool is_of_another_program) {
  const RunSchedule& schedule = stored.run.schedule;
  const bool is_constant = schedule.lr_decay_style == RunSchedule().lr_decay_style;
  if (!is_constant || schedule.lr_warmup_steps != 0) return;
  const std::vector<ParamGroup>& groups = stored.run.groups;
  const auto changed = std::ranges::find_if(
      groups, [](const ParamGroup& group) { return group.lr != group.max_lr * group.lr_mult; });
  std::string what;
  if (changed != groups.end()) {
    what = fmt::format("a scheduler changed the learning rate from {} to {}", changed->max_lr,
                       changed->lr);
  } else if (is_of_another_program && stored.said.contains(fmt::format("{}max_lr", kOfGroups))) {
    what = "the learning rate has a scheduler";
  } else {
    return;
  }
  Problem warning =
      Warning(ErrorKind::kUnsupported,
              fmt::format("{}, and the checkpoint does not say how it goes on", what));
  const ParamGroup& group = changed == groups.end() ? groups.front() : *changed;
  warning.hint = fmt::format("the target's schedule stays at {}", group.max_lr);
  stored.warnings.push_back(std::move(warning));
}

// Before torch 2.8 neither Adam nor AdamW said which of them it is.
void WarnOfDecay(StoredRun& stored) {
  if (stored.decouples_decay || stored.run.uses_sgd()) return;
  if (LargestDecay(stored.run.groups) == 0) return;
  Problem warning =
      Warning(ErrorKind::kUnsupported,
              "the checkpoint does not say whether weight decay is decoupled from the gradient");
  warning.hint = "it is taken for AdamW's, which is; Adam's is not";
  stored.assumptions.push_back(std::move(warning));
}

constexpr std::string_view kUncounted =
    "nothing says how often the optimizer has updated: its own state does not count";

// How often the optimizer updated, where no parameter counts: what a run of ours stores, or for
// SGD 0, since it computes the first update as any other if its momentum is there.
Result<std::int64_t> UpdatesBesideState(const CheckpointSource& source, StoredRun& stored) {
  const std::string key = fmt::format("{}{}", kRunState, kUpdates);
  if (source.index().FindObject(key) != nullptr) return ReadStoredInteger(source, key);
  const auto lacks_momentum = [&](const ParamGroup& group) {
    return !group.sgd || (group.sgd->momentum != 0 && stored.moments.empty());
  };
  if (std::ranges::any_of(stored.run.groups, lacks_momentum)) {
    return Error(ErrorKind::kMissing, kUncounted).Expected(key).Hint(kTakeWeightsAlone);
  }
  Problem warning = Warning(ErrorKind::kMissing, std::string(kUncounted));
  warning.hint = "updates and iterations count from 0";
  stored.assumptions.push_back(std::move(warning));
  return 0;
}

// The only optimizer of the checkpoint: of those that keep something, if any do.
Result<std::string> FindOptimizer(const CheckpointIndex& index) {
  std::set<std::string> optimizers = OptimizersIn(index);
  if (optimizers.empty()) {
    for (const auto& [optimizer, owners] : SgdGroupsIn(index)) optimizers.insert(optimizer);
  }
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

// Whether a group names its parameters, and does not number them.
bool NamesParameters(const CheckpointSource& source, const std::string& optimizer,
                     std::string_view owner) {
  if (!IsNumber(owner)) return true;
  std::vector<std::string> names;
  const std::string prefix = fmt::format("{}{}{}.", optimizer, kGroups, owner);
  const Status read = ObjectFields(source, prefix).Read(kParams, names);
  // Numbers are no texts. Of what cannot be read at all, ReadRun says why.
  if (!read.ok()) return read.kind() != ErrorKind::kBadMetadata;
  return !std::ranges::all_of(names, &IsNumber);
}

// Notes the place of the state where nothing is in it, and nothing else has a key that begins so.
Status NoteEmptyState(const CheckpointSource& source, const std::string& optimizer,
                      std::vector<std::string>& decoded) {
  const std::string key = fmt::format("{}{}", optimizer, kEmptyState);
  const ObjectEntry* const state = source.index().FindObject(key);
  if (state == nullptr) return OkStatus();
  const auto begins_so = [&](const ObjectEntry& object) { return object.key.starts_with(key); };
  if (std::ranges::count_if(source.index().objects(), begins_so) != 1) return OkStatus();
  CKPT_ASSIGN_OR_RETURN(const RenderedObject object, source.ReadObject(*state));
  if (object.json == "{}") decoded.push_back(key);
  return OkStatus();
}

}  // namespace

Result<Configuration> ReadArgs(const CheckpointSource& source) {
  return ReadStoredMembers(source, kRunArgs, "");
}

bool HoldsRun(const CheckpointIndex& index) { return !OptimizersIn(index).empty(); }

bool HoldsGroups(const CheckpointSource& source) {
  return std::ranges::any_of(SgdGroupsIn(source.index()), [&](const auto& groups) {
    return std::ranges::any_of(groups.second, [&](const std::string& owner) {
      return NamesParameters(source, groups.first, owner);
    });
  });
}

bool HasKeysOf(const CheckpointIndex& index) {
  return HoldsRun(index) || !SgdGroupsIn(index).empty();
}

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
  CKPT_ASSIGN_OR_RETURN(Groups groups, ReadGroups(source, optimizer, stored));
  CKPT_ASSIGN_OR_RETURN(const std::optional<std::int64_t> counted, ReadSteps(source, state));
  run.groups = groups.groups;
  std::int64_t updates = counted.value_or(0);
  if (!counted) {
    CKPT_ASSIGN_OR_RETURN(updates, UpdatesBesideState(source, stored));
  }
  for (ParamGroup& group : run.groups) group.step = updates;
  const std::set<std::string> trained = TrainedIn(state);
  for (auto& parameter : groups.group_of) {
    // SGD may keep nothing, and before its first update no optimizer does.
    const bool is_trained = trained.empty() || trained.contains(parameter.first);
    (is_trained ? run.group_of : run.frozen_of).push_back(std::move(parameter));
  }
  CKPT_RETURN_IF_ERROR(CheckKeepsMoments(stored));
  CKPT_ASSIGN_OR_RETURN(const Configuration args, ReadArgs(source));
  stored.decoded = {fmt::format("{}{}", optimizer, kGroups)};
  CKPT_RETURN_IF_ERROR(NoteEmptyState(source, optimizer, stored.decoded));
  if (!args.empty()) {
    CKPT_RETURN_IF_ERROR(ReadOwnProgress(source, args, detail, stored));
    megatron::SettleDecoupling(stored);
    stored.decoded.emplace_back(kRunState);
    if (!ObjectFields(source, kRunState).Has(kOwnScheduler)) {
      stored.decoded.emplace_back(kScheduler);
    }
  } else {
    const Configuration made = ArgsOf(stored);
    run.args.assign(made.begin(), made.end());
    run.iteration = updates;
    megatron::KeepGroupsSettings(run);
    WarnOfDecay(stored);
  }
  WarnOfScheduler(stored, args.empty());
  for (const auto& [parameter, key] : state.steps) {
    const bool is_tensor = source.index().FindTensor(key) != nullptr;
    (is_tensor ? stored.decoded_tensors : stored.decoded).push_back(key);
  }
  return stored;
}

}  // namespace ckpt::fsdp2

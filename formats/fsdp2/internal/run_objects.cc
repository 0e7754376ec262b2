#include "formats/fsdp2/internal/run_objects.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "core/base/endian.h"
#include "core/base/text_number.h"
#include "core/training/run_settings.h"
#include "formats/fsdp2/internal/run_keys.h"
#include "formats/megatron/object_fields.h"
#include "formats/pickle/writer.h"

namespace ckpt::fsdp2 {
namespace {

using layout::Value;
using megatron::ObjectField;
using megatron::PickleValue;

bool IsFlat(const ChosenForms& forms) { return IsChosen(forms, kOptimizerOption, kFlat); }

// What a scheduler of torch starts a group at.
double FirstRate(const ParamGroup& group) { return group.max_lr * group.lr_mult; }

// What torch 2.15 keeps of a group. A run without schedule has `lr` alone.
std::vector<ObjectField> TorchFields(const ParamGroup& group, const TrainingRun& run) {
  std::vector<ObjectField> fields;
  const megatron::AddFields add = {fields};
  VisitOptimizer(group, add);
  if (!group.sgd) {
    const Value* const decoupled = FindArg(run, "decoupled_weight_decay");
    const bool is_said = decoupled != nullptr && decoupled->AsBool() != nullptr;
    add("amsgrad", false);
    add("capturable", false);
    add("decoupled_weight_decay", is_said ? *decoupled->AsBool() : true);
  }
  for (const char* flag : {"maximize", "differentiable"}) add(flag, false);
  for (const char* choice : {"foreach", "fused"}) add(choice, Value());
  add("initial_lr", FirstRate(group));
  for (const auto& [name, value] : group.others) {
    const auto known = std::ranges::find(fields, name, &ObjectField::name);
    if (known == fields.end()) {
      add(name, value);
    } else {
      known->pickle = PickleValue(value);
    }
  }
  return fields;
}

std::vector<ObjectField> MegatronFields(const ParamGroup& group) {
  std::vector<ObjectField> fields;
  VisitGroup(group, megatron::AddFields{fields});
  return fields;
}

Bytes PickleTexts(const std::vector<std::string>& texts) {
  pickle::PickleWriter pickle(pickle::Dialect::kWeightsOnly);
  pickle.BeginList();
  for (const std::string& text : texts) pickle.Text(text);
  pickle.EndList();
  return pickle.Take();
}

Bytes PickleDict(const megatron::NamedValues& values) {
  pickle::PickleWriter pickle(pickle::Dialect::kWeightsOnly);
  pickle.BeginDict();
  for (const auto& [name, value] : values) {
    pickle.Text(name);
    megatron::WriteValue(value, pickle);
  }
  pickle.EndDict();
  return pickle.Take();
}

void Add(std::string_view prefix, std::vector<ObjectField> fields,
         std::vector<PickledEntry>& objects) {
  for (ObjectField& field : fields) {
    objects.push_back({fmt::format("{}{}", prefix, field.name), {std::move(field.pickle)}});
  }
}

std::vector<std::vector<std::string>> ParametersByGroup(const TrainingRun& run) {
  std::vector<std::vector<std::string>> names(run.groups.size());
  for (const auto* parameters : {&run.group_of, &run.frozen_of}) {
    for (const auto& [name, group] : *parameters) names.at(group).push_back(name);
  }
  return names;
}

void AddGroups(const TrainingRun& run, bool is_flat, std::vector<PickledEntry>& objects) {
  const std::vector<std::vector<std::string>> parameters = ParametersByGroup(run);
  for (std::size_t g = 0; g < run.groups.size(); ++g) {
    const std::string own = fmt::format("{}{}.", kRunGroups, g);
    const std::string prefix = fmt::format("{}{}", kOptimizer, kGroups);
    Add(own, MegatronFields(run.groups[g]), objects);
    const std::vector<ObjectField> fields = TorchFields(run.groups[g], run);
    if (is_flat) {
      objects.push_back({fmt::format("{}{}", own, kParams), {PickleTexts(parameters[g])}});
      for (const std::string& name : parameters[g]) {
        Add(fmt::format("{}{}.", prefix, name), fields, objects);
      }
    } else {
      const std::string numbered = fmt::format("{}{}.", prefix, g);
      Add(numbered, fields, objects);
      objects.push_back({fmt::format("{}{}", numbered, kParams), {PickleTexts(parameters[g])}});
    }
  }
}

// What LambdaLR keeps: the curve itself is the program's.
std::vector<ObjectField> SchedulerFields(const TrainingRun& run) {
  Value::List base;
  Value::List last;
  Value::List curves;
  for (const ParamGroup& group : run.groups) {
    base.emplace_back(FirstRate(group));
    last.emplace_back(group.lr);
    curves.emplace_back();
  }
  const std::int64_t updates = run.finished_updates();
  return {{"base_lrs", PickleValue(Value(std::move(base)))},
          {"last_epoch", PickleValue(updates)},
          {"verbose", PickleValue(false)},
          {"_step_count", PickleValue(updates + 1)},
          {"_is_initial", PickleValue(false)},
          {"_get_lr_called_within_step", PickleValue(false)},
          {"_last_lr", PickleValue(Value(std::move(last)))},
          {"lr_lambdas", PickleValue(Value(std::move(curves)))}};
}

// The number of a list, or a name.
PathStep StepOf(std::string_view text) {
  const std::optional<std::int64_t> number = ParseNumber<std::int64_t>(text);
  return number && IsNumber(text) ? PathStep(*number) : PathStep(std::string(text));
}

std::string WithoutDot(std::string_view prefix) {
  return std::string(prefix.substr(0, prefix.size() - 1));
}

}  // namespace

std::string WeightKey(std::string_view name) { return fmt::format("{}{}", kModel, name); }

std::string MomentKey(std::string_view name, std::string_view moment) {
  return fmt::format("{}{}{}.{}", kOptimizer, kState, name, moment);
}

PickledEntry ArgsObject(const megatron::NamedValues& args) {
  return {std::string(kRunArgs), {PickleDict(args)}};
}

std::vector<PickledEntry> RunObjects(const TrainingRun& run, const ChosenForms& forms,
                                     std::vector<PickledEntry> carried) {
  const bool has_scheduler = std::ranges::any_of(
      carried, [](const PickledEntry& object) { return object.key.starts_with(kScheduler); });
  std::vector<PickledEntry> objects = std::move(carried);
  AddGroups(run, IsFlat(forms), objects);
  if (has_scheduler) {
    Add(kRunState, {{std::string(kOwnScheduler), PickleValue(true)}}, objects);
  } else {
    Add(kScheduler, SchedulerFields(run), objects);
  }
  objects.push_back(ArgsObject(run.args));
  Add(kRunSchedule, megatron::ScheduleFields(run.schedule), objects);
  Add(kRunState,
      {{std::string(kIteration), PickleValue(run.iteration)},
       {std::string(kUpdates), PickleValue(run.finished_updates())},
       {std::string(kSamples), PickleValue(run.consumed_samples)},
       {std::string(kOperations), PickleValue(run.num_floating_point_operations)}},
      objects);
  return objects;
}

void AddEmptyState(const ChosenForms& forms, RunEntries& entries) {
  const std::string state = fmt::format("{}{}", kOptimizer, kState);
  const std::string key = fmt::format("{}{}", kOptimizer, kEmptyState);
  const auto is_of_state = [&](const auto& entry) {
    return entry.key == key || entry.key.starts_with(state);
  };
  const bool is_there = std::ranges::any_of(entries.tensors, is_of_state) ||
                        std::ranges::any_of(entries.known_tensors, is_of_state) ||
                        std::ranges::any_of(entries.objects, is_of_state);
  if (!is_there && !IsFlat(forms)) entries.objects.push_back({key, {PickleDict({})}});
}

std::vector<MemoryTensor> StepTensors(const TrainingRun& run) {
  std::vector<MemoryTensor> steps;
  if (run.uses_sgd()) return steps;
  for (const auto& [name, group] : run.group_of) {
    MemoryTensor& step = steps.emplace_back();
    step.key = MomentKey(name, kStep);
    AppendLe(static_cast<float>(run.groups.at(group).step), step.values);
  }
  return steps;
}

EntryPath RunPath(const std::string& key, const ChosenForms& forms) {
  std::string_view rest = key;
  if (TakePrefix(kModel, rest)) return {WithoutDot(kModel), std::string(rest)};
  if (TakePrefix(kScheduler, rest)) return {WithoutDot(kScheduler), std::string(rest)};
  if (TakePrefix(kOptimizer, rest)) {
    const auto parsed = ParseOptimizerKey(key);
    if (IsFlat(forms) || !parsed) return {WithoutDot(kOptimizer), std::string(rest)};
    return {WithoutDot(kOptimizer), WithoutDot(parsed->section), StepOf(parsed->owner),
            std::string(parsed->field)};
  }
  if (!TakePrefix(kRunState, rest)) return {key};
  EntryPath path = {WithoutDot(kRunState)};
  for (std::size_t dot = rest.find('.'); dot != std::string_view::npos; dot = rest.find('.')) {
    path.push_back(StepOf(rest.substr(0, dot)));
    rest.remove_prefix(dot + 1);
  }
  path.emplace_back(std::string(rest));
  return path;
}

}  // namespace ckpt::fsdp2

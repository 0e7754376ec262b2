#include "formats/fsdp_dtensor/internal/run_objects.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/text_number.h"
#include "core/tensor/dtype.h"
#include "core/training/run_settings.h"
#include "formats/fsdp_dtensor/internal/run_keys.h"
#include "formats/megatron/object_fields.h"
#include "formats/megatron/plain_pickle.h"
#include "formats/megatron/random_states.h"
#include "formats/megatron/stored_settings.h"

namespace ckpt::fsdp_dtensor {
namespace {

using megatron::ObjectField;
using megatron::PickleNamespace;
using megatron::PickleValue;

std::vector<ObjectField> FieldsOf(const ParamGroup& group) {
  std::vector<ObjectField> fields;
  const megatron::AddFields add = {fields};
  VisitGroup(group, add);
  VisitOptimizer(group, add);
  if (!group.sgd) add("bias_correction", true);
  add("step", group.step);
  for (const auto& [name, value] : megatron::OthersOf(group)) add(name, value);
  return fields;
}

// The start of the keys of a tensor rank's random states. The first 0 is the pipeline stage. The
// last one is the first state of several that ranks have only if each of them initialises its own
// model.
std::string RandomStatesOf(int tensor_rank) {
  return fmt::format("{}(0, {}).0.", kRandomStates, tensor_rank);
}

// The name of an optimized tensor in the live module, where both halves of a SwiGLU fc1 are one
// parameter.
std::string LiveName(const std::string& name, const std::set<std::string>& names) {
  if (!name.ends_with(kGateHalf) && !name.ends_with(kUpHalf)) return name;
  std::string whole = name.substr(0, name.size() - kGateHalf.size());
  const bool is_half = names.contains(whole + std::string(kGateHalf)) &&
                       names.contains(whole + std::string(kUpHalf));
  return is_half ? whole : name;
}

// The group of every parameter, by its live name.
std::map<std::string, std::size_t> LiveGroups(const TrainingRun& run) {
  std::set<std::string> names;
  for (const auto& [name, group] : run.group_of) names.insert(name);
  std::map<std::string, std::size_t> groups;
  for (const auto& [name, group] : run.group_of) groups[LiveName(name, names)] = group;
  return groups;
}

// The run's arguments, and the order of its groups where names do not tell it.
megatron::NamedValues ArgsWithOrder(const TrainingRun& run) {
  megatron::NamedValues args = run.args;
  std::erase_if(args, [](const auto& arg) { return arg.first == kGroupOrder; });
  std::map<std::size_t, std::string> first_of;
  std::vector<std::size_t> found;
  for (const auto& [name, group] : LiveGroups(run)) {
    if (first_of.emplace(group, name).second) found.push_back(group);
  }
  const auto decays = [&](std::size_t group) { return run.groups.at(group).wd_mult != 0; };
  std::stable_partition(found.begin(), found.end(), decays);
  if (std::ranges::is_sorted(found)) return args;
  layout::Value::List order;
  for (const auto& [group, name] : first_of) order.emplace_back(name);
  args.emplace_back(kGroupOrder, layout::Value(std::move(order)));
  return args;
}

// "a.b.c" → "a.b", "c".
EntryPath SplitAtLastDot(std::string_view text) {
  const std::size_t dot = text.rfind('.');
  if (dot == std::string_view::npos) return {std::string(text)};
  return {std::string(text.substr(0, dot)), std::string(text.substr(dot + 1))};
}

EntryPath Below(EntryPath parents, const EntryPath& rest) {
  parents.insert(parents.end(), rest.begin(), rest.end());
  return parents;
}

// "(0, 1).0.rng_tracker_states.<name>": a mapping by rank, a list, a mapping and perhaps another.
std::optional<EntryPath> RandomStatePath(std::string_view rest) {
  const std::size_t rank_end = rest.find(").");
  if (rank_end == std::string_view::npos) return std::nullopt;
  const std::string_view rank = rest.substr(0, rank_end + 1);
  rest.remove_prefix(rank_end + 2);
  const std::optional<std::int64_t> position = TakeNumber<std::int64_t>(rest);
  if (!position || !TakePrefix(".", rest)) return std::nullopt;
  const EntryPath parents = {std::string("rng_state"), std::string(rank), *position};
  if (TakePrefix(kTrackerStates, rest)) {
    return Below(parents, {std::string("rng_tracker_states"), std::string(rest)});
  }
  return Below(parents, {std::string(rest)});
}

}  // namespace

std::string WeightKey(std::string_view name) {
  return fmt::format("{}{}{}", kModel, kModelWrappers, name);
}

std::string MomentKey(std::string_view name, std::string_view moment) {
  return fmt::format("{}{}{}.{}", kOptimizerState, kOptimizerWrappers, name, moment);
}

std::vector<PickledEntry> RunObjects(const TrainingRun& run) {
  std::vector<PickledEntry> objects = {
      {std::string(kArgs), {PickleNamespace(ArgsWithOrder(run))}},
      {"checkpoint_version", {PickleValue(3.0)}},
      {std::string(kIteration), {PickleValue(run.iteration)}},
      {std::string(kOperations), {PickleValue(run.num_floating_point_operations)}}};
  for (ObjectField& field : megatron::ScheduleFields(run.schedule)) {
    objects.push_back({fmt::format("{}{}", kScheduler, field.name), {std::move(field.pickle)}});
  }
  std::vector<std::vector<ObjectField>> groups;
  for (const ParamGroup& group : run.groups) groups.push_back(FieldsOf(group));
  for (const auto& [name, group] : LiveGroups(run)) {
    for (const ObjectField& field : groups.at(group)) {
      objects.push_back({fmt::format("{}{}{}.{}", kGroupMeta, kOptimizerWrappers, name, field.name),
                         {field.pickle}});
    }
  }
  for (int rank = 0; rank < run.tensor_ranks; ++rank) {
    const std::string prefix = RandomStatesOf(rank);
    objects.push_back({prefix + "random_rng_state", {megatron::PicklePythonState(run.seed)}});
    objects.push_back({prefix + "np_rng_state", {megatron::PickleNumpyState(run.seed)}});
  }
  return objects;
}

std::vector<MemoryTensor> RunTensors(const TrainingRun& run) {
  std::vector<MemoryTensor> tensors;
  const auto add = [&](std::string key, Bytes values) {
    const auto size = static_cast<std::int64_t>(values.size());
    tensors.push_back({.key = std::move(key),
                       .dtype = DType::kUint8,
                       .shape = {size},
                       .values = std::move(values)});
  };
  for (int rank = 0; rank < run.tensor_ranks; ++rank) {
    const std::string prefix = RandomStatesOf(rank);
    const std::string tracked = prefix + std::string(kTrackerStates);
    const auto offset = static_cast<std::uint64_t>(rank);
    add(prefix + "torch_rng_state", megatron::TorchCpuState(run.seed));
    add(prefix + "cuda_rng_state", megatron::TorchCudaState(run.seed));
    for (const megatron::TrackedState& state : megatron::TrackedStates(run.seed, offset)) {
      add(tracked + std::string(state.name), megatron::TorchCudaState(state.seed));
    }
  }
  return tensors;
}

EntryPath RunPath(const std::string& key) {
  const std::string optimizer = "optimizer";
  std::string_view rest = key;
  if (TakePrefix(kModel, rest)) return {std::string("model"), std::string(rest)};
  if (TakePrefix(kOptimizerState, rest)) {
    return Below({optimizer, std::string("state")}, SplitAtLastDot(rest));
  }
  if (TakePrefix(kGroupMeta, rest)) {
    return Below({optimizer, std::string("param_to_group_meta")}, SplitAtLastDot(rest));
  }
  if (TakePrefix(kScheduler, rest)) {
    return {std::string("opt_param_scheduler"), std::string(rest)};
  }
  if (TakePrefix(kRandomStates, rest)) {
    if (auto path = RandomStatePath(rest)) return *std::move(path);
  }
  return {key};
}

}  // namespace ckpt::fsdp_dtensor

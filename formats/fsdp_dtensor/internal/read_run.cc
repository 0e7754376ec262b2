#include "formats/fsdp_dtensor/internal/read_run.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/layout/find_value.h"
#include "core/training/run_settings.h"
#include "core/training/stored_values.h"
#include "formats/fsdp_dtensor/internal/run_keys.h"
#include "formats/megatron/bridge_files.h"
#include "formats/megatron/distinct_groups.h"
#include "formats/megatron/object_fields.h"
#include "formats/megatron/schedule.h"
#include "formats/megatron/stored_settings.h"

namespace ckpt::fsdp_dtensor {
namespace {

using layout::Configuration;
using megatron::ObjectFields;

constexpr std::string_view kStepSuffix = ".step";
constexpr std::array<std::string_view, 2> kMomentsOfAdam = {"exp_avg", "exp_avg_sq"};
constexpr std::array<std::string_view, 1> kMomentsOfSgd = {kMomentOfSgd};

// The name of the parameter between `prefix` and `suffix`, without the wrappers around the live
// module.
std::optional<std::string> ParameterIn(std::string_view key, std::string_view prefix,
                                       std::string_view suffix) {
  if (!key.starts_with(prefix) || !key.ends_with(suffix)) return std::nullopt;
  key.remove_prefix(prefix.size());
  if (key.size() <= suffix.size()) return std::nullopt;
  key.remove_suffix(suffix.size());
  while (key.starts_with(kModelWrappers)) key.remove_prefix(kModelWrappers.size());
  return std::string(key);
}

Result<ParamGroup> ReadGroup(const CheckpointSource& source, const std::string& prefix,
                             StoredRun& into) {
  const RunSchedule& schedule = into.run.schedule;
  ParamGroup group = {.max_lr = schedule.max_lr, .min_lr = schedule.min_lr};
  CKPT_RETURN_IF_ERROR(megatron::ReadGroup(ObjectFields(source, prefix), group, into));
  return group;
}

// Groups are stored by parameter, so their order is that of the argument that says it. Without one,
// those that decay come first, as in Megatron-Core and in most programs.
Status OrderGroups(const std::map<std::string, std::size_t>& positions, TrainingRun& run) {
  std::vector<std::size_t> order;
  std::vector<bool> is_placed(run.groups.size());
  const auto add = [&](std::size_t group) {
    if (!is_placed[group]) order.push_back(group);
    is_placed[group] = true;
  };
  if (const layout::Value* const said = FindArg(run, kGroupOrder)) {
    if (said->AsList() == nullptr) {
      return Error(ErrorKind::kBadMetadata,
                   fmt::format("argument {} is of the wrong kind", kGroupOrder))
          .Tensor(kArgs)
          .Expected("names of parameters")
          .Actual(layout::FormatValue(*said));
    }
    for (const layout::Value& name : *said->AsList()) {
      const auto found =
          name.AsText() == nullptr ? positions.end() : positions.find(*name.AsText());
      if (found != positions.end()) add(found->second);
    }
    std::erase_if(run.args, [](const auto& arg) { return arg.first == kGroupOrder; });
  }
  for (const bool decays : {true, false}) {
    for (std::size_t g = 0; g < run.groups.size(); ++g) {
      if ((run.groups[g].wd_mult != 0) == decays) add(g);
    }
  }
  megatron::ReorderGroups(order, run.groups, run.group_of);
  return OkStatus();
}

// The parameters of each group of the run, with all their settings. Those of equal settings are
// one group; every one was updated as often as the first of the run.
Status ReadSettings(const CheckpointSource& source, bool is_sgd, StoredRun& into) {
  TrainingRun& run = into.run;
  CKPT_RETURN_IF_ERROR(megatron::ReadSchedule(ObjectFields(source, kScheduler), into));
  for (const auto& [name, value] : run.args) {  // of Megatron-Bridge's train state
    if (name == kOperations && value.AsFloat() != nullptr) {
      run.num_floating_point_operations = *value.AsFloat();
      into.said.emplace(kOperations);
    }
  }
  const ObjectFields progress(source, "");
  CKPT_RETURN_IF_ERROR(progress.Read(kOperations, run.num_floating_point_operations));
  if (progress.Has(kOperations)) into.said.emplace(kOperations);
  const std::int64_t updates = run.finished_updates();
  std::map<std::string, std::size_t> positions;
  megatron::DistinctGroups distinct;
  for (const ObjectEntry& object : source.index().objects()) {
    const auto name = ParameterIn(object.key, kGroupMeta, kStepSuffix);
    if (!name) continue;
    const std::string prefix = object.key.substr(0, object.key.size() - kStepSuffix.size() + 1);
    CKPT_ASSIGN_OR_RETURN(ParamGroup group, ReadGroup(source, prefix, into));
    group.step = updates;
    if (is_sgd && !group.sgd) group.sgd = megatron::SgdOf({run.args.begin(), run.args.end()});
    positions[*name] = distinct.Add(group);
  }
  run.groups = distinct.groups();
  for (auto& [name, position] : run.group_of) position = positions.at(name);
  CKPT_RETURN_IF_ERROR(OrderGroups(positions, run));
  megatron::SettleDecoupling(into);
  return OkStatus();
}

// The parameters that the optimizer updates, and how many updates it made.
Status ReadGroups(const CheckpointSource& source, TrainingRun& run) {
  for (const ObjectEntry& object : source.index().objects()) {
    auto name = ParameterIn(object.key, kGroupMeta, kStepSuffix);
    if (!name) continue;
    CKPT_ASSIGN_OR_RETURN(const std::int64_t updates, ReadStoredInteger(source, object.key));
    if (run.groups.empty()) run.groups.push_back({.step = updates});
    if (updates != run.finished_updates()) {
      return Error(ErrorKind::kUnsupported, "parameters were updated unequally often")
          .Tensor(object.key)
          .Expected(fmt::format("{} updates", run.finished_updates()))
          .Actual(fmt::format("{}", updates));
    }
    run.group_of.emplace_back(*std::move(name), 0);
  }
  if (!run.groups.empty()) return OkStatus();
  return Error(ErrorKind::kMissing, "nothing says how often the optimizer updated the weights")
      .Expected(fmt::format("objects {}*{}", kGroupMeta, kStepSuffix))
      .Hint(
          "a conversion has no optimizer, and a run may leave it out: ckpt-train --set "
          "finetune=true takes the weights alone");
}

template <typename Entry>
bool HasField(std::span<const Entry> entries, std::string_view prefix, std::string_view field) {
  const std::string suffix = fmt::format(".{}", field);
  return std::ranges::any_of(entries, [&](const Entry& entry) {
    return ParameterIn(entry.key, prefix, suffix).has_value();
  });
}

// The names of what the optimizer keeps for each weight: SGD's or Adam's. SGD, which its groups
// tell from Adam, keeps nothing without momentum.
std::span<const std::string_view> MomentsIn(const CheckpointIndex& index) {
  if (HasField(index.tensors(), kOptimizerState, kMomentOfSgd)) return kMomentsOfSgd;
  if (HasField(index.objects(), kGroupMeta, "momentum")) return {};
  return kMomentsOfAdam;
}

// Every parameter of a group must have this moment.
Status CheckMoment(const StoredMoment& moment, const TrainingRun& run) {
  std::set<std::string> present;
  for (const auto& [key, weight] : moment.weight_of) present.insert(weight);
  Status absent;
  for (const auto& [weight, group] : run.group_of) {
    const bool is_present =
        present.contains(weight) || (present.contains(weight + std::string(kGateHalf)) &&
                                     present.contains(weight + std::string(kUpHalf)));
    if (is_present) continue;
    absent.Add(Error(ErrorKind::kMissing, "a trained weight has no moment of the optimizer")
                   .Tensor(fmt::format("{}*{}.{}", kOptimizerState, weight, moment.name)));
  }
  return absent;
}

// Nothing if the argument is absent or None.
Result<std::optional<std::int64_t>> IntegerIn(const Configuration& args, std::string_view name) {
  const auto found = args.find(name);
  if (found == args.end() || found->second.is_null()) return std::optional<std::int64_t>();
  if (const std::int64_t* value = found->second.AsInt()) return std::optional(*value);
  return Error(ErrorKind::kBadMetadata, fmt::format("argument {} is of the wrong kind", name))
      .Tensor(kArgs)
      .Actual(layout::FormatValue(found->second));
}

Result<std::int64_t> NeededIntegerIn(const Configuration& args, std::string_view name) {
  CKPT_ASSIGN_OR_RETURN(const std::optional<std::int64_t> number, IntegerIn(args, name));
  if (number) return *number;
  return Error(ErrorKind::kMissing, fmt::format("args have no {}", name)).Tensor(kArgs);
}

// How many tensor ranks Megatron had, and never more than a machine may have.
int TensorRanksIn(const Configuration& args) {
  const std::int64_t size = layout::FindInt(args, "tensor_model_parallel_size").value_or(1);
  constexpr std::int64_t kMost = 1024;
  return static_cast<int>(std::clamp<std::int64_t>(size, 1, kMost));
}

// Megatron cuts the gate from the projection for SwiGLU alone. Of another gate, a tensor has what
// each tensor rank holds of both, one rank behind the other, and nothing beside it says so.
Status CheckGateIsWhole(const Configuration& args) {
  const auto is_geglu = args.find("quick_geglu");
  if (is_geglu == args.end() || is_geglu->second != layout::Value(true)) return OkStatus();
  for (const char* name : {"tensor_model_parallel_size", "expert_tensor_parallel_size"}) {
    CKPT_ASSIGN_OR_RETURN(const std::optional<std::int64_t> ranks, IntegerIn(args, name));
    if (ranks.value_or(1) == 1) continue;
    return Error(ErrorKind::kUnsupported,
                 fmt::format("gate and up of a GEGLU are stored rank by rank: {}", name))
        .Tensor(kArgs)
        .Expected("1")
        .Actual(std::to_string(*ranks));
  }
  return OkStatus();
}

Status ReadProgress(const CheckpointSource& source, RunDetail detail, TrainingRun& run) {
  CKPT_ASSIGN_OR_RETURN(const Configuration args, ReadArgs(source));
  run.args.assign(args.begin(), args.end());
  CKPT_ASSIGN_OR_RETURN(run.iteration, ReadStoredInteger(source, kIteration));
  CKPT_ASSIGN_OR_RETURN(run.consumed_samples, NeededIntegerIn(args, kSamples));
  CKPT_ASSIGN_OR_RETURN(const std::optional<std::int64_t> seed, IntegerIn(args, "seed"));
  run.seed = static_cast<std::uint64_t>(seed.value_or(0));
  run.tensor_ranks = TensorRanksIn(args);
  const std::string position = fmt::format("{}num_steps", kScheduler);
  CKPT_ASSIGN_OR_RETURN(run.schedule.num_steps, ReadStoredInteger(source, position));
  if (detail == RunDetail::kWhole) return OkStatus();
  return megatron::CheckSchedule(run, args, position);
}

}  // namespace

Result<Configuration> ReadArgs(const CheckpointSource& source) {
  CKPT_ASSIGN_OR_RETURN(Configuration args, ReadStoredMembers(source, kArgs, "$object.state."));
  if (args.empty()) {
    CKPT_ASSIGN_OR_RETURN(args, megatron::ReadBridgeArgs(source));
  }
  CKPT_RETURN_IF_ERROR(CheckGateIsWhole(args));
  return args;
}

bool HoldsRun(const CheckpointIndex& index) {
  constexpr std::string_view kOptimizer = "optimizer.";
  const auto is_of_optimizer = [&](const auto& entry) { return entry.key.starts_with(kOptimizer); };
  return std::ranges::any_of(index.tensors(), is_of_optimizer) ||
         std::ranges::any_of(index.objects(), is_of_optimizer);
}

Result<OptimizerTensors> FindTensors(const CheckpointIndex& index) {
  OptimizerTensors found;
  for (const std::string_view name : MomentsIn(index)) {
    const std::string suffix = fmt::format(".{}", name);
    StoredMoment& moment = found.moments.emplace_back();
    moment.name = name;
    for (const GlobalTensor& tensor : index.tensors()) {
      if (auto weight = ParameterIn(tensor.key, kOptimizerState, suffix)) {
        moment.weight_of[tensor.key] = *std::move(weight);
      }
    }
  }
  return found;
}

Status CheckMomentDtype(const std::string& key, DType dtype) {
  if (dtype != DType::kFloat16 && ElementBytes(dtype) > 1) return OkStatus();
  return Error(ErrorKind::kUnsupported,
               "Transformer Engine divides such moments by a factor that is not stored")
      .Tensor(key)
      .Expected("float32 or bfloat16")
      .Actual(std::string(DTypeName(dtype)))
      .Hint(std::string(kTakeWeightsAlone));
}

Status CheckNeedNoFactor(const CheckpointIndex& index, const OptimizerTensors& tensors) {
  for (const StoredMoment& moment : tensors.moments) {
    for (const auto& [key, weight] : moment.weight_of) {
      CKPT_RETURN_IF_ERROR(CheckMomentDtype(key, index.FindTensor(key)->dtype));
    }
  }
  return OkStatus();
}

Result<StoredRun> ReadRun(const CheckpointSource& source, RunDetail detail) {
  CKPT_ASSIGN_OR_RETURN(OptimizerTensors tensors, FindTensors(source.index()));
  CKPT_RETURN_IF_ERROR(CheckNeedNoFactor(source.index(), tensors));
  StoredRun stored{std::move(tensors)};
  CKPT_RETURN_IF_ERROR(ReadGroups(source, stored.run));
  for (const StoredMoment& moment : stored.moments) {
    CKPT_RETURN_IF_ERROR(CheckMoment(moment, stored.run));
  }
  CKPT_RETURN_IF_ERROR(ReadProgress(source, detail, stored.run));
  CKPT_RETURN_IF_ERROR(ReadSettings(source, MomentsIn(source.index()).size() == 1, stored));
  CKPT_RETURN_IF_ERROR(CheckKeepsMoments(stored));
  stored.said.insert({std::string(kIteration), std::string(kSamples)});
  stored.decoded = {std::string(kArgs),
                    std::string(kIteration),
                    "checkpoint_version",
                    std::string(kOperations),
                    std::string(kGroupMeta),
                    std::string(kScheduler),
                    std::string(megatron::kRunConfigKey),
                    std::string(megatron::kTrainStateKey)};
  return stored;
}

}  // namespace ckpt::fsdp_dtensor

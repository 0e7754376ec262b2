#include "converters/verbs/save_training_state.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "converters/config/megatron_args.h"
#include "converters/verbs/model_source.h"
#include "converters/verbs/weight_reader.h"
#include "core/layout/affine.h"
#include "core/plan/follow_chunks.h"
#include "core/plan/plan_check.h"
#include "formats/fsdp_dtensor/writer.h"

namespace ckpt {
namespace {

constexpr std::string_view kFormat = "fsdp_dtensor";

// Tensors of the target, as they are collected.
struct Target {
  std::vector<TargetTensor> tensors;
  std::vector<TensorRecipe> recipes;

  void Add(TargetTensor tensor, TensorRecipe recipe) {
    tensors.push_back(std::move(tensor));
    recipes.push_back(std::move(recipe));
  }
};

// The tensors behind `prefix`, taken for the weights they belong to.
Result<ModelSource> TakeForModel(const std::shared_ptr<const OpenedCheckpoint>& checkpoint,
                                 const layout::Configuration& config, const std::string& prefix,
                                 bool is_whole) {
  OpenModelOptions options;
  options.naming = kTrainerNaming;
  options.only = {prefix + "*"};
  options.allow_missing = !is_whole;
  for (const GlobalTensor& tensor : checkpoint->source->index().tensors()) {
    if (tensor.key.starts_with(prefix)) {
      options.rename[tensor.key] = tensor.key.substr(prefix.size());
    }
  }
  return MatchModel(checkpoint, config, options);
}

// Adds the model's tensors under the format's names; `key_of(tensor, name)` makes a key of such a name.
template <typename KeyOf>
Status AddModel(const ModelSource& model, const layout::Choices& choices, const KeyOf& key_of,
                Target& target) {
  CKPT_ASSIGN_OR_RETURN(ModelView view, ViewModel(model, std::string(kFormat), choices));
  for (std::size_t t = 0; t < view.tensors.size(); ++t) {
    TargetTensor& tensor = view.tensors[t];
    tensor.key = key_of(tensor, tensor.key.substr(view.layout.prefix.size()));
    target.Add(std::move(tensor), std::move(view.recipes[t]));
  }
  return OkStatus();
}

void AddRunTensors(const CheckpointIndex& index, const std::string& prefix, Target& target) {
  for (std::uint32_t i = 0; i < index.tensors().size(); ++i) {
    const GlobalTensor& tensor = index.tensors()[i];
    if (!tensor.key.starts_with(prefix)) continue;
    target.Add(
        {.key = tensor.key.substr(prefix.size()), .dtype = tensor.dtype, .shape = tensor.shape},
        {.nests = {layout::IdentityNest(i, tensor.shape)}, .source_dtype = tensor.dtype});
  }
}

// The vocabulary with its padding: rows that a run has are state, whatever they stand for.
Result<layout::Configuration> ConfigOfRun(const fsdp_dtensor::RunState& run) {
  const layout::Configuration args(run.args.begin(), run.args.end());
  CKPT_ASSIGN_OR_RETURN(layout::Configuration config, ConfigFromMegatronArgs(args));
  CountVocabularyPadding(config);
  return config;
}

// The live name of an optimized tensor: the halves of a SwiGLU fc1 are one parameter.
std::string LiveName(const std::string& name, const std::set<std::string>& names) {
  constexpr std::string_view kGate = "_w";
  constexpr std::string_view kUp = "_v";
  if (!name.ends_with(kGate) && !name.ends_with(kUp)) return name;
  std::string whole = name.substr(0, name.size() - kGate.size());
  const bool is_half =
      names.contains(whole + std::string(kGate)) && names.contains(whole + std::string(kUp));
  return is_half ? whole : name;
}

// `dims` are those of every optimized tensor, by its name.
void AssignGroups(const std::map<std::string, std::size_t>& dims, fsdp_dtensor::RunState& run) {
  if (run.groups.empty()) return;
  std::set<std::string> names;
  for (const auto& [name, ndim] : dims) names.insert(name);
  std::map<std::string, std::size_t> group_of;
  for (const auto& [name, ndim] : dims) {
    const std::string live = LiveName(name, names);
    const bool decays = ndim >= 2 && !live.ends_with(".bias");
    group_of[live] = decays ? 0 : run.groups.size() - 1;
  }
  run.group_of.assign(group_of.begin(), group_of.end());
}

// For each block in the order of the plan's items, its file takes the block's writer.
std::vector<int> WritersOf(const WritePlan& plan,
                           const std::vector<std::vector<dcp::PlacedRows>>& placed) {
  std::vector<int> writers(plan.files.size(), 0);
  std::size_t item = 0;
  for (const std::vector<dcp::PlacedRows>& blocks : placed) {
    for (const dcp::PlacedRows& block : blocks) {
      writers[plan.items[item++].file] = static_cast<int>(block.writer);
    }
  }
  return writers;
}

}  // namespace

Result<TrainingSave> PlanTrainingSave(const RunningState& state, fsdp_dtensor::RunState run,
                                      const layout::Choices& choices,
                                      const std::vector<WriteCopy>& side_files) {
  CKPT_ASSIGN_OR_RETURN(const layout::Configuration config, ConfigOfRun(run));
  const auto checkpoint = std::make_shared<OpenedCheckpoint>();
  checkpoint->format = "memory";
  checkpoint->source = state.source;
  const CheckpointIndex& index = state.source->index();

  Target target;
  CKPT_ASSIGN_OR_RETURN(const ModelSource weights,
                        TakeForModel(checkpoint, config, state.weights, true));
  const auto weight_key = [](const TargetTensor& /*tensor*/, std::string_view name) {
    return fsdp_dtensor::WeightKey(name);
  };
  CKPT_RETURN_IF_ERROR(AddModel(weights, choices, weight_key, target));
  std::map<std::string, std::size_t> optimized;
  for (std::size_t m = 0; m < state.moments.size(); ++m) {
    CKPT_ASSIGN_OR_RETURN(const ModelSource moment,
                          TakeForModel(checkpoint, config, state.moments[m], false));
    const auto key_of = [&](const TargetTensor& tensor, std::string_view name) {
      optimized[std::string(name)] = tensor.shape.size();
      return fsdp_dtensor::MomentKey(name, state.moment_names[m]);
    };
    CKPT_RETURN_IF_ERROR(AddModel(moment, choices, key_of, target));
  }
  AssignGroups(optimized, run);
  AddRunTensors(index, state.run, target);

  std::vector<std::vector<dcp::PlacedRows>> placed;
  for (std::size_t t = 0; t < target.tensors.size(); ++t) {
    CKPT_ASSIGN_OR_RETURN(const std::vector<RowsFromFile> rows,
                          FollowChunks(target.tensors[t], target.recipes[t], index));
    std::vector<dcp::PlacedRows>& blocks = placed.emplace_back();
    for (const RowsFromFile& block : rows) {
      blocks.push_back({.box = block.box, .writer = block.file});
    }
  }
  TrainingSave save;
  CKPT_ASSIGN_OR_RETURN(save.plan.write,
                        fsdp_dtensor::PlanRun(std::move(target.tensors), placed, run, side_files));
  save.writers = WritersOf(save.plan.write, placed);
  save.plan.recipes = std::move(target.recipes);
  CKPT_RETURN_IF_ERROR(CheckPlan(save.plan, index));
  return save;
}

}  // namespace ckpt

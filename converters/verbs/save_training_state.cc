#include "converters/verbs/save_training_state.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "converters/config/megatron_args.h"
#include "converters/families/known_namings.h"
#include "converters/verbs/model_source.h"
#include "converters/verbs/weight_reader.h"
#include "core/layout/affine.h"
#include "core/plan/follow_chunks.h"
#include "core/plan/plan_check.h"
#include "formats/fsdp_dtensor/format.h"
#include "formats/fsdp_dtensor/writer.h"

namespace ckpt {
namespace {

void AddTensor(TargetTensor tensor, TensorRecipe recipe, SavedTensors& saved) {
  saved.tensors.push_back(std::move(tensor));
  saved.recipes.push_back(std::move(recipe));
}

// The tensors behind `prefix`, taken for the weights they belong to.
Result<ModelSource> TakeForModel(const std::shared_ptr<const OpenedCheckpoint>& checkpoint,
                                 const layout::Configuration& config, const std::string& prefix,
                                 bool is_whole) {
  OpenModelOptions options;
  options.naming = kTrainerNaming;
  options.allow_missing = !is_whole;
  for (const GlobalTensor& tensor : checkpoint->source->index().tensors()) {
    if (tensor.key.starts_with(prefix)) {
      options.take_as[tensor.key] = tensor.key.substr(prefix.size());
    }
  }
  return MatchModel(checkpoint, config, options);
}

// Adds the model's tensors under the format's names; `key_of(tensor, name)` makes a key of such a name.
template <typename KeyOf>
Status AddModel(const ModelSource& model, const layout::Choices& choices, const KeyOf& key_of,
                SavedTensors& saved) {
  CKPT_ASSIGN_OR_RETURN(ModelView view,
                        ViewModel(model, std::string(fsdp_dtensor::kFormat.usual_naming), choices));
  for (std::size_t t = 0; t < view.tensors.size(); ++t) {
    TargetTensor& tensor = view.tensors[t];
    tensor.key = key_of(tensor, tensor.key.substr(view.layout.prefix.size()));
    AddTensor(std::move(tensor), std::move(view.recipes[t]), saved);
  }
  return OkStatus();
}

void AddRunTensors(const CheckpointIndex& index, const std::string& prefix, SavedTensors& saved) {
  for (std::uint32_t i = 0; i < index.tensors().size(); ++i) {
    const GlobalTensor& tensor = index.tensors()[i];
    if (!tensor.key.starts_with(prefix)) continue;
    AddTensor(
        {.key = tensor.key.substr(prefix.size()), .dtype = tensor.dtype, .shape = tensor.shape},
        {.nests = {layout::IdentityNest(i, tensor.shape)}, .source_dtype = tensor.dtype}, saved);
  }
}

// The vocabulary with its padding: rows that a run has are state, whatever they stand for.
Result<layout::Configuration> ConfigOfRun(const layout::Configuration& args) {
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
std::map<std::string, bool> WhatDecays(const std::map<std::string, std::size_t>& dims) {
  std::set<std::string> names;
  for (const auto& [name, ndim] : dims) names.insert(name);
  std::map<std::string, bool> decays;
  for (const auto& [name, ndim] : dims) {
    const std::string live = LiveName(name, names);
    decays[live] = ndim >= 2 && !live.ends_with(".bias");
  }
  return decays;
}

// The rows of every tensor, each block with the file of the source that has it.
Status PlaceTensors(const CheckpointIndex& index, SavedTensors& saved) {
  for (std::size_t t = 0; t < saved.tensors.size(); ++t) {
    CKPT_ASSIGN_OR_RETURN(const std::vector<RowsFromFile> rows,
                          FollowChunks(saved.tensors[t], saved.recipes[t], index));
    std::vector<dcp::PlacedRows>& blocks = saved.placed.emplace_back();
    for (const RowsFromFile& block : rows) {
      blocks.push_back({.box = block.box, .writer = block.file});
    }
  }
  return OkStatus();
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

Result<SavedTensors> PlanSavedTensors(const RunningState& state, const layout::Configuration& args,
                                      const layout::Choices& choices) {
  CKPT_ASSIGN_OR_RETURN(const layout::Configuration config, ConfigOfRun(args));
  const auto checkpoint = std::make_shared<OpenedCheckpoint>();
  checkpoint->source = state.source;
  const CheckpointIndex& index = state.source->index();

  SavedTensors saved;
  CKPT_ASSIGN_OR_RETURN(const ModelSource weights,
                        TakeForModel(checkpoint, config, state.weights, true));
  const auto weight_key = [](const TargetTensor& /*tensor*/, std::string_view name) {
    return fsdp_dtensor::WeightKey(name);
  };
  CKPT_RETURN_IF_ERROR(AddModel(weights, choices, weight_key, saved));
  std::map<std::string, std::size_t> optimized;
  for (std::size_t m = 0; m < state.moments.size(); ++m) {
    CKPT_ASSIGN_OR_RETURN(const ModelSource moment,
                          TakeForModel(checkpoint, config, state.moments[m], false));
    const auto key_of = [&](const TargetTensor& tensor, std::string_view name) {
      optimized[std::string(name)] = tensor.shape.size();
      return fsdp_dtensor::MomentKey(name, state.moment_names[m]);
    };
    CKPT_RETURN_IF_ERROR(AddModel(moment, choices, key_of, saved));
  }
  saved.decays = WhatDecays(optimized);
  AddRunTensors(index, state.run, saved);
  CKPT_RETURN_IF_ERROR(CheckRecipes(saved.tensors, saved.recipes, index));
  CKPT_RETURN_IF_ERROR(PlaceTensors(index, saved));
  return saved;
}

Status CheckSavesAsModel(const RunningState& state, layout::Configuration hf_config) {
  const auto checkpoint = std::make_shared<OpenedCheckpoint>();
  checkpoint->source = state.source;
  CKPT_ASSIGN_OR_RETURN(const ModelSource model,
                        TakeForModel(checkpoint, hf_config, state.weights, true));
  return ViewModel(model, std::string(PublishedNaming().name), {}).status();
}

Result<TrainingSave> PlanTrainingSave(const SavedTensors& saved, TrainingRun run,
                                      const std::vector<WriteCopy>& side_files) {
  run.group_of.clear();
  if (!run.groups.empty()) {
    for (const auto& [name, decays] : saved.decays) {
      run.group_of.emplace_back(name, decays ? 0 : run.groups.size() - 1);
    }
  }
  TrainingSave save;
  CKPT_ASSIGN_OR_RETURN(save.plan.write,
                        fsdp_dtensor::PlanRun(saved.tensors, saved.placed, run, side_files));
  save.writers = WritersOf(save.plan.write, saved.placed);
  save.plan.recipes = saved.recipes;
  CKPT_RETURN_IF_ERROR(CheckWritePlan(save.plan.write));
  return save;
}

}  // namespace ckpt

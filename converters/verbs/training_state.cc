#include "converters/verbs/training_state.h"

#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "formats/registry/stored_run.h"

namespace ckpt {
namespace {

// Tensors, each under the name of the weight to which it belongs.
Result<ModelSource> TakeAsWeights(Storage& storage, const ModelSource& weights,
                                  std::map<std::string, std::string> weight_of,
                                  const OpenModelOptions& options) {
  OpenModelOptions as_weights = options;
  as_weights.naming = weights.match.layout.naming;
  as_weights.take_as = std::move(weight_of);
  as_weights.allow_missing = true;  // of what is not trained
  as_weights.only.clear();
  as_weights.drop.clear();
  as_weights.rename.clear();
  return UnderstandModel(storage, weights.checkpoint, as_weights);
}

// The exact weights. Those that are not trained have no copy: there is one of each.
Result<ModelSource> UnderstandMainWeights(Storage& storage, const ModelSource& weights,
                                          std::map<std::string, std::string> weight_of,
                                          const OpenModelOptions& options) {
  std::set<std::string> trained;
  for (const auto& [key, weight] : weight_of) trained.insert(weight);
  const layout::SourceMatch& match = weights.match;
  for (std::size_t t = 0; t < match.positions.size(); ++t) {
    if (match.positions[t] == layout::SourceMatch::kAbsent) continue;
    const std::string& name = match.layout.tensors[t].name;
    if (trained.contains(name)) continue;
    weight_of[weights.source().index().tensors()[match.positions[t]].key] = name;
  }
  CKPT_ASSIGN_OR_RETURN(ModelSource main,
                        TakeAsWeights(storage, weights, std::move(weight_of), options));
  main.left_out = weights.left_out;
  main.warnings = weights.warnings;
  return main;
}

// `state` has the weights that the checkpoint has for the model.
Status TakeTensors(Storage& storage, OptimizerTensors tensors, const OpenModelOptions& options,
                   TrainingState& state) {
  for (StoredMoment& moment : tensors.moments) {
    for (const auto& [key, weight] : moment.weight_of) state.tensors.insert(key);
    CKPT_ASSIGN_OR_RETURN(
        state.moments.emplace_back(),
        TakeAsWeights(storage, state.weights, std::move(moment.weight_of), options));
    state.moment_names.push_back(std::move(moment.name));
  }
  if (tensors.main_weights.empty()) return OkStatus();
  for (const auto& [key, weight] : tensors.main_weights) state.main_weights.insert(key);
  state.tensors.insert(state.main_weights.begin(), state.main_weights.end());
  CKPT_ASSIGN_OR_RETURN(
      state.weights,
      UnderstandMainWeights(storage, state.weights, std::move(tensors.main_weights), options));
  return OkStatus();
}

}  // namespace

Result<std::optional<TrainingState>> UnderstandOptimizer(Storage& storage, const ModelSource& model,
                                                         const OpenModelOptions& options) {
  CKPT_ASSIGN_OR_RETURN(std::vector<OptimizerTensors> found,
                        FindOptimizerTensors(*model.checkpoint));
  Status failure;
  for (OptimizerTensors& tensors : found) {
    TrainingState state;
    state.weights = model;
    Status taken = TakeTensors(storage, std::move(tensors), options, state);
    if (taken.ok()) return std::optional(std::move(state));
    failure = std::move(taken);  // these are no names of the model's weights
  }
  if (!failure.ok()) return failure;
  return std::optional<TrainingState>();
}

Result<TrainingState> OpenTrainingState(Storage& storage, const Path& path,
                                        const OpenModelOptions& options) {
  CKPT_ASSIGN_OR_RETURN(OpenedCheckpoint checkpoint, OpenCheckpoint(storage, path, options.open));
  return UnderstandTrainingState(
      storage, std::make_shared<const OpenedCheckpoint>(std::move(checkpoint)), options);
}

Result<TrainingState> UnderstandTrainingState(Storage& storage,
                                              std::shared_ptr<const OpenedCheckpoint> checkpoint,
                                              const OpenModelOptions& options, RunDetail detail) {
  const std::string file = checkpoint->path.string();
  Result<std::shared_ptr<const OpenedCheckpoint>> seen = SeeParameters(std::move(checkpoint));
  if (!seen.ok()) return std::move(seen).status().File(file);
  TrainingState state;
  CKPT_ASSIGN_OR_RETURN(state.weights, UnderstandModel(storage, *std::move(seen), options));
  Result<StoredRun> stored = ReadStoredRun(*state.weights.checkpoint, detail);
  if (!stored.ok()) return std::move(stored).status().File(file);
  CKPT_RETURN_IF_ERROR(TakeTensors(storage, OptimizerTensors(*stored), options, state));
  state.tensors.insert(stored->decoded_tensors.begin(), stored->decoded_tensors.end());
  state.objects = std::move(stored->decoded);
  state.unread = std::move(stored->unread);
  state.warnings = std::move(stored->warnings);
  state.assumptions = std::move(stored->assumptions);
  for (auto* const problems : {&state.warnings, &state.assumptions}) {
    for (Problem& problem : *problems) problem.file = file;
  }
  state.said = std::move(stored->said);
  state.run = std::move(stored->run);
  state.args.insert(state.run.args.begin(), state.run.args.end());
  Result<OwnFacts> facts = ReadOwnFacts(state.args);
  if (!facts.ok()) return std::move(facts).status().File(file);
  state.facts = *std::move(facts);
  return state;
}

}  // namespace ckpt

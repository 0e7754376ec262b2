#include "converters/verbs/training_state.h"

#include <memory>
#include <utility>

#include "formats/registry/stored_run.h"

namespace ckpt {
namespace {

// The moment's tensors, taken for the weights they belong to.
Result<ModelSource> UnderstandMoment(Storage& storage, const ModelSource& weights,
                                     StoredMoment moment, const OpenModelOptions& options) {
  OpenModelOptions as_weights = options;
  as_weights.naming = weights.match.layout.naming;
  as_weights.take_as = std::move(moment.weight_of);
  as_weights.allow_missing = true;  // of what is not trained
  as_weights.only.clear();
  as_weights.drop.clear();
  as_weights.rename.clear();
  return UnderstandModel(storage, weights.checkpoint, as_weights);
}

}  // namespace

Result<TrainingState> OpenTrainingState(Storage& storage, const Path& path,
                                        const OpenModelOptions& options) {
  CKPT_ASSIGN_OR_RETURN(OpenedCheckpoint checkpoint, OpenCheckpoint(storage, path, options.open));
  return UnderstandTrainingState(
      storage, std::make_shared<const OpenedCheckpoint>(std::move(checkpoint)), options);
}

Result<TrainingState> UnderstandTrainingState(Storage& storage,
                                              std::shared_ptr<const OpenedCheckpoint> checkpoint,
                                              const OpenModelOptions& options) {
  TrainingState state;
  CKPT_ASSIGN_OR_RETURN(state.weights, UnderstandModel(storage, std::move(checkpoint), options));
  const std::string file = state.weights.checkpoint->path.string();
  Result<StoredRun> stored = ReadStoredRun(*state.weights.checkpoint);
  if (!stored.ok()) return std::move(stored).status().File(file);
  for (StoredMoment& moment : stored->moments) {
    CKPT_ASSIGN_OR_RETURN(state.moments.emplace_back(),
                          UnderstandMoment(storage, state.weights, std::move(moment), options));
  }
  state.run = std::move(stored->run);
  state.args.insert(state.run.args.begin(), state.run.args.end());
  Result<OwnFacts> facts = ReadOwnFacts(state.args);
  if (!facts.ok()) return std::move(facts).status().File(file);
  state.facts = *std::move(facts);
  return state;
}

}  // namespace ckpt

#include "converters/verbs/training_state.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "converters/verbs/internal/offered_tensors.h"
#include "converters/verbs/optimizer_groups.h"
#include "core/layout/affine.h"
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

// The tensor of which `own`, a view of `model` under its own names, makes the copy at `copy` in the
// layout. Null: the checkpoint lacks it.
const layout::ResolvedTensor* FindOriginal(const ModelSource& model, const ModelView& own,
                                           std::uint32_t copy) {
  const layout::SourceMatch& match = model.match;
  const auto made = std::ranges::find(own.tensors, own.layout.Key(match.layout.tensors[copy]),
                                      &TargetTensor::key);
  if (made == own.tensors.end()) return nullptr;
  const auto t = static_cast<std::size_t>(made - own.tensors.begin());
  for (const layout::Nest& nest : own.recipes[t].nests) {
    if (nest.is_zero_fill()) continue;
    const auto original = std::ranges::find(match.positions, nest.source);
    return &match.layout.tensors[static_cast<std::size_t>(original - match.positions.begin())];
  }
  return nullptr;
}

// A tied weight and its copy are one parameter to most programs, and two where FSDP2 wraps them
// apart. A target has the weight's state and group alone: nothing may be lost with those of the
// copy. The values are compared where they are read (CheckCopies).
Status CheckCopiesInRun(const TrainingState& state) {
  const std::map<std::string_view, std::size_t> group_of(state.run.group_of.begin(),
                                                         state.run.group_of.end());
  Status lost;
  const std::span<const ModelSource> kept = state.moments.empty()
                                                ? std::span(&state.updated, 1)
                                                : std::span<const ModelSource>(state.moments);
  for (const ModelSource& moment : kept) {
    const layout::SourceMatch& match = moment.match;
    if (match.derived_present.empty()) continue;
    CKPT_ASSIGN_OR_RETURN(const ModelView own,
                          ViewModel(moment, match.layout.naming, match.layout.choices));
    for (const std::uint32_t copy : match.derived_present) {
      const std::string& key = moment.source().index().tensors()[match.positions[copy]].key;
      const layout::ResolvedTensor* const original = FindOriginal(moment, own, copy);
      if (original == nullptr) {
        lost.Add(Error(ErrorKind::kMissing,
                       "the optimizer has a state for the copy of a tied weight alone")
                     .Tensor(key)
                     .Hint(std::string(kTakeWeightsAlone)));
        continue;
      }
      const auto other = group_of.find(match.layout.tensors[copy].name);
      const auto group = group_of.find(original->name);
      if (other == group_of.end() || group == group_of.end()) continue;
      if (state.run.groups[other->second] == state.run.groups[group->second]) continue;
      lost.Add(Error(ErrorKind::kValueMismatch,
                     "a tied weight and its copy are in groups of the optimizer that differ")
                   .Tensor(key)
                   .Expected(fmt::format("group {}, as {}", group->second, original->name))
                   .Actual(fmt::format("group {}", other->second))
                   .Hint(std::string(kTakeWeightsAlone)));
    }
  }
  return lost;
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

// TrainingState::updated. `state` has the run, and its tensors.
Result<ModelSource> FindUpdated(Storage& storage, const TrainingState& state,
                                const OpenModelOptions& options) {
  if (!state.moments.empty()) return state.moments.front();
  NamedGroups named;
  if (!state.run.others_by_decay) {
    for (const auto& [name, group] : state.run.group_of) named[WithoutWrappers(name)] = group;
  }
  const layout::SourceMatch& match = state.weights.match;
  std::map<std::string, std::string> weight_of;
  std::set<std::string_view> found;
  for (std::size_t t = 0; t < match.positions.size(); ++t) {
    if (match.positions[t] == layout::SourceMatch::kAbsent) continue;
    const std::string& name = match.layout.tensors[t].name;
    const std::string& key = state.weights.source().index().tensors()[match.positions[t]].key;
    const auto* const parameter = FindNamed(named, name);
    if (parameter != nullptr) found.insert(parameter->first);
    const bool is_updated = named.empty()
                                ? state.main_weights.empty() || state.main_weights.contains(key)
                                : parameter != nullptr;
    if (is_updated) weight_of[key] = name;
  }
  Status absent;
  for (const auto& [name, group] : named) {
    if (found.contains(name)) continue;
    absent.Add(Error(ErrorKind::kMissing, "the optimizer has a parameter that is no weight here")
                   .Tensor(name)
                   .Hint(std::string(kTakeWeightsAlone)));
  }
  if (!absent.ok()) return absent;
  return TakeAsWeights(storage, state.weights, std::move(weight_of), options);
}

}  // namespace

bool TrainingState::IsOfRun(std::string_view key) const {
  return std::ranges::any_of(
      objects, [&](const std::string& beginning) { return key.starts_with(beginning); });
}

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
  CKPT_ASSIGN_OR_RETURN(state.updated, FindUpdated(storage, state, options));
  CKPT_RETURN_IF_ERROR(CheckCopiesInRun(state).File(file));
  Result<OwnFacts> facts = ReadOwnFacts(state.args);
  if (!facts.ok()) return std::move(facts).status().File(file);
  state.facts = *std::move(facts);
  return state;
}

}  // namespace ckpt

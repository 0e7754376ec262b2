#include "converters/verbs/comparison.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "converters/verbs/internal/compare_buffers.h"
#include "converters/verbs/internal/compare_runs.h"
#include "converters/verbs/internal/model_configuration.h"
#include "converters/verbs/internal/pair_models.h"
#include "converters/verbs/internal/vocabulary_padding.h"
#include "converters/verbs/model_source.h"
#include "converters/verbs/training_state.h"
#include "core/checkpoint/validate.h"
#include "core/layout/find_value.h"
#include "formats/registry/stored_run.h"

namespace ckpt {
namespace {

using Opened = std::shared_ptr<const OpenedCheckpoint>;

// The tensors of a side, and why readers may not deliver others of it.
struct StoredTensors {
  TensorsByKey tensors;
  std::vector<Problem> unreadable;
};

StoredTensors ListStored(const CheckpointSource& source) {
  StoredTensors listed;
  std::set<std::string, std::less<>> damaged;
  for (Problem& problem : ValidateIndex(source)) {
    if (problem.severity != Severity::kError || problem.tensor.empty()) continue;
    damaged.insert(problem.tensor);
    listed.unreadable.push_back(std::move(problem));
  }
  const auto stored = source.index().tensors();
  for (std::size_t position = 0; position < stored.size(); ++position) {
    if (damaged.contains(stored[position].key)) continue;
    listed.tensors.emplace(stored[position].key, AskAsStored(source.index(), position));
  }
  return listed;
}

Result<Comparison> CompareAsStored(const Opened& a, const Opened& b) {
  StoredTensors stored_a = ListStored(*a->source);
  StoredTensors stored_b = ListStored(*b->source);
  // A tensor that one side cannot deliver is not missing on the other.
  for (const Problem& problem : stored_a.unreadable) stored_b.tensors.erase(problem.tensor);
  for (const Problem& problem : stored_b.unreadable) stored_a.tensors.erase(problem.tensor);
  Comparison comparison;
  comparison.a.unreadable = std::move(stored_a.unreadable);
  comparison.b.unreadable = std::move(stored_b.unreadable);
  if (HaveSameKeys(*a, *b)) {
    CKPT_RETURN_IF_ERROR(ReplaceBuffers(a, b, stored_a.tensors, stored_b.tensors, comparison));
  }
  PairUp(std::move(stored_a.tensors), std::move(stored_b.tensors), comparison.pairs,
         comparison.a.only, comparison.b.only);
  return comparison;
}

// `config` is that of a checkpoint that says none.
OpenModelOptions OptionsFor(const CompareOptions& options, const Path& assets,
                            const layout::Configuration& config) {
  OpenModelOptions open;
  open.mapping = options.mapping;
  open.assets = assets;
  open.config = config;
  open.allow_missing = true;
  return open;
}

// `model` again with the configuration of `other`, if it has no config.json of its own: then both
// are read by one table. That of a run's arguments helps a model that nothing else describes.
void BorrowConfiguration(Storage& storage, const Opened& checkpoint, const CompareOptions& options,
                         const Result<ModelSource>& other, Result<ModelSource>& model) {
  const bool has_own = model.ok() && !model->assets.empty();
  if (has_own || !other.ok() || (model.ok() && other->assets.empty())) return;
  Result<ModelSource> again =
      UnderstandModel(storage, checkpoint, OptionsFor(options, other->assets, other->config));
  if (again.ok()) model = std::move(again);
}

// Whether the config.json of the options is that of the checkpoint: it has none of its own. Errors:
// those of the system.
Result<bool> TakesAssets(Storage& storage, const Opened& checkpoint,
                         const CompareOptions& options) {
  if (options.assets.empty()) return false;
  CKPT_ASSIGN_OR_RETURN(const Path own, FindAssets(storage, *checkpoint, {}));
  return own.empty();
}

// Reads both models with the rows that pad their vocabularies, if both have the same number of
// these: they are state of a run like all other. Returns whether it does. Errors: those of the
// system.
Result<bool> CountSamePadding(Storage& storage, const CompareOptions& options, ModelSource& a,
                              ModelSource& b) {
  const auto rows = [](const ModelSource& model) {
    return layout::FindInt(model.config, "padded_vocab_size");
  };
  if (!rows(a) || rows(a) != rows(b)) return false;
  const auto read = [&](const ModelSource& model) {
    OpenModelOptions open = OptionsFor(options, model.assets, model.config);
    open.with_vocabulary_padding = true;
    return UnderstandModel(storage, model.checkpoint, open);
  };
  Result<ModelSource> padded_a = read(a);
  Result<ModelSource> padded_b = read(b);
  for (const Result<ModelSource>* padded : {&padded_a, &padded_b}) {
    if (padded->ok()) continue;
    if (IsOfSystem(padded->status().kind())) return padded->status();
    return false;  // the configuration says what the checkpoint does not have
  }
  a = *std::move(padded_a);
  b = *std::move(padded_b);
  return true;
}

bool HasForm(const layout::ResolvedLayout& a, const layout::ResolvedLayout& b) {
  return a.naming == b.naming && a.choices == b.choices && a.prefix == b.prefix;
}

// The training run in a model's checkpoint, if it holds one whose tensors are understood.
Result<std::optional<TrainingState>> UnderstandRun(Storage& storage, const ModelSource& model,
                                                   const CompareOptions& options, bool with_padding,
                                                   SideRest& rest) {
  OpenModelOptions open = OptionsFor(options, model.assets, model.config);
  open.with_vocabulary_padding = with_padding;
  Result<std::optional<TrainingState>> tensors = UnderstandOptimizer(storage, model, open);
  rest.holds_run = HoldsRun(*model.checkpoint) || (tensors.ok() && tensors->has_value());
  if (!tensors.ok()) {
    rest.not_a_run = std::move(tensors).status();
    return std::optional<TrainingState>();
  }
  if (!tensors->has_value()) return std::optional<TrainingState>();
  Result<TrainingState> whole =
      UnderstandTrainingState(storage, model.checkpoint, open, RunDetail::kWhole);
  if (whole.ok()) return std::optional(*std::move(whole));
  if (whole.status().kind() == ErrorKind::kChecksum) return std::move(whole).status();
  rest.no_settings = std::move(whole).status();
  return *std::move(tensors);
}

// The keys of every moment of an optimizer, and of its exact weights, by what they are.
std::map<std::string, std::set<std::string>> OptimizerKeys(const Opened& checkpoint) {
  std::map<std::string, std::set<std::string>> keys;
  const Result<std::vector<OptimizerTensors>> found = FindOptimizerTensors(*checkpoint);
  if (!found.ok() || found->empty()) return keys;
  for (const StoredMoment& moment : found->front().moments) {
    for (const auto& [key, weight] : moment.weight_of) keys[moment.name].insert(key);
  }
  for (const auto& [key, weight] : found->front().main_weights) keys[""].insert(key);
  return keys;
}

// Whether both optimizers keep the same under keys of which none is the same, or one alone has
// exact weights: those of the other are the model's own.
bool HaveOtherOptimizerKeys(const Opened& a, const Opened& b) {
  const auto keys_a = OptimizerKeys(a);
  const auto keys_b = OptimizerKeys(b);
  const bool differ_in_exact_weights = keys_a.contains("") != keys_b.contains("");
  if (differ_in_exact_weights && HoldsRun(*a) && HoldsRun(*b)) return true;
  return std::ranges::any_of(keys_a, [&](const auto& kept) {
    const auto other = keys_b.find(kept.first);
    return other != keys_b.end() && std::ranges::none_of(kept.second, [&](const std::string& key) {
             return other->second.contains(key);
           });
  });
}

// What both sides keep beside the model under one key is compared as it is stored: tensors as
// pairs, objects by whoever reads them.
void PairBookkeeping(const CheckpointIndex& a, const CheckpointIndex& b, Comparison& comparison) {
  std::set<std::string, std::less<>> left_out_of_b;
  for (const LeftOutEntry& entry : comparison.b.left_out) left_out_of_b.insert(entry.key);
  std::set<std::string, std::less<>> compared;
  for (const LeftOutEntry& entry : comparison.a.left_out) {
    if (!left_out_of_b.contains(entry.key)) continue;
    const GlobalTensor* const in_a = a.FindTensor(entry.key);
    const GlobalTensor* const in_b = b.FindTensor(entry.key);
    if (in_a != nullptr && in_b != nullptr && entry.is_bookkeeping) {
      comparison.pairs.push_back(
          {.key = entry.key,
           .a = AskAsStored(a, static_cast<std::size_t>(in_a - a.tensors().data())),
           .b = AskAsStored(b, static_cast<std::size_t>(in_b - b.tensors().data()))});
      compared.insert(entry.key);
    } else if (a.FindObject(entry.key) != nullptr && b.FindObject(entry.key) != nullptr) {
      compared.insert(entry.key);
    }
  }
  for (SideRest* const rest : {&comparison.a, &comparison.b}) {
    std::erase_if(rest->left_out,
                  [&](const LeftOutEntry& entry) { return compared.contains(entry.key); });
  }
}

// Whether what says the arguments of both runs are objects of one key.
bool HaveSameArguments(const TrainingState& a, const TrainingState& b) {
  const auto is_of_both = [&](const ObjectEntry& object) {
    return a.IsOfRun(object.key) && b.IsOfRun(object.key) &&
           b.weights.source().index().FindObject(object.key) != nullptr;
  };
  return std::ranges::any_of(a.weights.source().index().objects(), is_of_both);
}

Result<Comparison> CompareModels(Storage& storage, const CompareOptions& options, ModelSource a,
                                 ModelSource b) {
  CKPT_ASSIGN_OR_RETURN(const bool with_padding, CountSamePadding(storage, options, a, b));
  Comparison comparison;
  comparison.is_of_models = true;
  comparison.naming = a.match.layout.naming;
  comparison.a.left_out = a.left_out;
  comparison.b.left_out = b.left_out;
  CKPT_ASSIGN_OR_RETURN(ModelPairs weights, PairModels(a, b));
  comparison.a.only = std::move(weights.only_a);
  comparison.b.only = std::move(weights.only_b);
  comparison.pairs = std::move(weights.weights);
  std::set<std::string, std::less<>> keys;
  for (const TensorPair& pair : comparison.pairs) keys.insert(pair.key);
  for (auto* const copies : {&weights.copies_in_a, &weights.copies_in_b}) {
    for (TensorPair& pair : *copies) {
      if (keys.insert(pair.key).second) comparison.pairs.push_back(std::move(pair));
    }
  }
  CKPT_ASSIGN_OR_RETURN(const std::optional<TrainingState> run_a,
                        UnderstandRun(storage, a, options, with_padding, comparison.a));
  CKPT_ASSIGN_OR_RETURN(const std::optional<TrainingState> run_b,
                        UnderstandRun(storage, b, options, with_padding, comparison.b));
  if (run_a && run_b) comparison.b.not_a_run = CompareRuns({a, *run_a}, {b, *run_b}, comparison);
  if (comparison.run) comparison.run->has_same_arguments = HaveSameArguments(*run_a, *run_b);
  PairBookkeeping(a.source().index(), b.source().index(), comparison);
  for (const auto& [model, rest] : {std::pair(&a, &comparison.a), std::pair(&b, &comparison.b)}) {
    CKPT_ASSIGN_OR_RETURN(std::vector<LeftOutEntry> padding, FindPadding(*model));
    std::ranges::move(padding, std::back_inserter(rest->left_out));
  }
  std::ranges::sort(comparison.pairs, {}, &TensorPair::key);
  return comparison;
}

// How often the parts of each tensor of a side are stored, at most.
class CopyCounts {
 public:
  explicit CopyCounts(const CheckpointIndex& index) {
    for (const GlobalTensor& tensor : index.tensors()) counts_.push_back(index.NumCopies(tensor));
  }

  [[nodiscard]] std::size_t Of(const TensorAsked& asked) const {
    std::size_t most = 1;
    for (const layout::Nest& nest : asked.recipe.nests) {
      if (!nest.is_zero_fill()) most = std::max(most, counts_[nest.source]);
    }
    return most;
  }

 private:
  std::vector<std::size_t> counts_;  // by position in the index
};

void AddCopies(const CheckpointIndex& a, const CheckpointIndex& b, Comparison& comparison) {
  const CopyCounts counts_a(a);
  const CopyCounts counts_b(b);
  std::vector<TensorPair> copies;
  for (const TensorPair& pair : comparison.pairs) {
    const std::size_t count = std::max(counts_a.Of(pair.a), counts_b.Of(pair.b));
    for (std::size_t copy = 1; copy < count; ++copy) {
      copies.push_back({.key = pair.key, .a = pair.a, .b = pair.b, .copy = copy});
    }
  }
  std::ranges::move(copies, std::back_inserter(comparison.pairs));
  std::ranges::stable_sort(comparison.pairs, {}, &TensorPair::key);
}

// Every tensor once: what a side stores several times is not yet a pair for each copy.
Result<Comparison> CompareFirstCopies(Storage& storage, const Opened& a, const Opened& b,
                                      const CompareOptions& options) {
  const bool asks_for_models = !options.mapping.empty() || !options.assets.empty();
  if (!asks_for_models && HaveSameKeys(*a, *b)) return CompareAsStored(a, b);
  CKPT_ASSIGN_OR_RETURN(const bool a_takes_assets, TakesAssets(storage, a, options));
  CKPT_ASSIGN_OR_RETURN(const bool b_takes_assets, TakesAssets(storage, b, options));
  const auto understand = [&](const Opened& side, bool takes_assets) {
    const Path assets = takes_assets ? options.assets : Path();
    return UnderstandModel(storage, side, OptionsFor(options, assets, {}));
  };
  Result<ModelSource> model_a = understand(a, a_takes_assets);
  Result<ModelSource> model_b = understand(b, b_takes_assets);
  if (!options.assets.empty() && !a_takes_assets && !b_takes_assets) {
    return Error(ErrorKind::kUsage, "--hf-assets changes nothing: both sides have a config.json")
        .File(options.assets.string())
        .Hint("leave ckpt-inspect diff's --hf-assets out");
  }
  if (!a_takes_assets) BorrowConfiguration(storage, a, options, model_b, model_a);
  if (!b_takes_assets) BorrowConfiguration(storage, b, options, model_a, model_b);
  for (const Result<ModelSource>* model : {&model_a, &model_b}) {
    if (model->ok()) continue;
    if (asks_for_models || model->status().kind() == ErrorKind::kChecksum) {
      return model->status();
    }
  }
  if (model_a.ok() && model_b.ok() &&
      (asks_for_models || !HasForm(model_a->match.layout, model_b->match.layout) ||
       HaveOtherOptimizerKeys(a, b))) {
    return CompareModels(storage, options, *std::move(model_a), *std::move(model_b));
  }
  CKPT_ASSIGN_OR_RETURN(Comparison comparison, CompareAsStored(a, b));
  if (!model_a.ok()) comparison.a.not_a_model = std::move(model_a).status();
  if (!model_b.ok()) comparison.b.not_a_model = std::move(model_b).status();
  return comparison;
}

}  // namespace

std::string NameOfCopy(const std::string& key, std::size_t copy) {
  return copy == 0 ? key : fmt::format("{} (copy {})", key, copy + 1);
}

bool HaveSameKeys(const OpenedCheckpoint& a, const OpenedCheckpoint& b) {
  return std::ranges::equal(a.source->index().tensors(), b.source->index().tensors(), {},
                            &GlobalTensor::key, &GlobalTensor::key);
}

Result<Comparison> CompareCheckpoints(Storage& storage, const Opened& a, const Opened& b,
                                      const CompareOptions& options) {
  CKPT_ASSIGN_OR_RETURN(Comparison comparison, CompareFirstCopies(storage, a, b, options));
  AddCopies(a->source->index(), b->source->index(), comparison);
  return comparison;
}

}  // namespace ckpt

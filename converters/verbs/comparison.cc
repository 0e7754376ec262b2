#include "converters/verbs/comparison.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "converters/verbs/model_source.h"
#include "core/checkpoint/validate.h"
#include "core/layout/affine.h"

namespace ckpt {
namespace {

constexpr char kPaddedVocabulary[] = "padded_vocab_size";

using TensorsByKey = std::map<std::string, TensorAsked, std::less<>>;
using Opened = std::shared_ptr<const OpenedCheckpoint>;

// A stored tensor as it is.
TensorAsked AskAsStored(const CheckpointIndex& index, std::size_t position) {
  const GlobalTensor& tensor = index.tensors()[position];
  TensorAsked asked{.key = tensor.key,
                    .dtype = tensor.dtype,
                    .shape = tensor.shape,
                    .recipe = {.nests = {}, .source_dtype = tensor.dtype}};
  if (!IsEmpty(WholeBox(tensor.shape))) {
    asked.recipe.nests.push_back(
        layout::IdentityNest(static_cast<std::uint32_t>(position), tensor.shape));
  }
  return asked;
}

// Takes whatever both have out of `a` and `b`.
void PairUp(TensorsByKey a, TensorsByKey b, Comparison& comparison) {
  for (auto& [key, asked] : a) {
    const auto other = b.find(key);
    if (other == b.end()) {
      comparison.a.only.push_back(std::move(asked));
      continue;
    }
    comparison.pairs.push_back({key, std::move(asked), std::move(other->second)});
    b.erase(other);
  }
  for (auto& [key, asked] : b) comparison.b.only.push_back(std::move(asked));
}

TensorsByKey DeliverableTensors(const CheckpointSource& source, SideRest& rest) {
  std::set<std::string, std::less<>> damaged;
  for (Problem& problem : ValidateIndex(source)) {
    if (problem.severity != Severity::kError || problem.tensor.empty()) continue;
    damaged.insert(problem.tensor);
    rest.unreadable.push_back(std::move(problem));
  }
  TensorsByKey tensors;
  const auto stored = source.index().tensors();
  for (std::size_t position = 0; position < stored.size(); ++position) {
    if (damaged.contains(stored[position].key)) continue;
    tensors.emplace(stored[position].key, AskAsStored(source.index(), position));
  }
  return tensors;
}

void PairStored(const CheckpointSource& a, const CheckpointSource& b, Comparison& comparison) {
  TensorsByKey tensors_a = DeliverableTensors(a, comparison.a);
  TensorsByKey tensors_b = DeliverableTensors(b, comparison.b);
  // A tensor that one side cannot deliver is not missing on the other.
  for (const Problem& problem : comparison.a.unreadable) tensors_b.erase(problem.tensor);
  for (const Problem& problem : comparison.b.unreadable) tensors_a.erase(problem.tensor);
  PairUp(std::move(tensors_a), std::move(tensors_b), comparison);
}

bool HasSameKeys(const CheckpointIndex& a, const CheckpointIndex& b) {
  return std::ranges::equal(a.tensors(), b.tensors(), {}, &GlobalTensor::key, &GlobalTensor::key);
}

Result<ModelSource> Understand(Storage& storage, const Opened& checkpoint,
                               const CompareOptions& options, const Path& assets) {
  OpenModelOptions open;
  open.mapping = options.mapping;
  open.assets = assets;
  open.allow_missing = true;
  return UnderstandModel(storage, checkpoint, open);
}

// `model` again with the configuration of `other`, if it has no config.json of its own: then both
// are read by one table.
void BorrowAssets(Storage& storage, const Opened& checkpoint, const CompareOptions& options,
                  const Result<ModelSource>& other, Result<ModelSource>& model) {
  const bool has_own = model.ok() && !model->assets.empty();
  if (has_own || !other.ok() || other->assets.empty()) return;
  Result<ModelSource> again = Understand(storage, checkpoint, options, other->assets);
  if (again.ok()) model = std::move(again);
}

bool HasForm(const layout::ResolvedLayout& a, const layout::ResolvedLayout& b) {
  return a.naming == b.naming && a.choices == b.choices && a.prefix == b.prefix;
}

// `model` with as many rows of padding as `like` has, so that one naming gives both the same
// shapes.
ModelSource PaddedLike(ModelSource model, const ModelSource& like) {
  model.config.erase(kPaddedVocabulary);
  const auto padded = like.config.find(kPaddedVocabulary);
  if (padded != like.config.end()) model.config.insert(*padded);
  return model;
}

// A model's tensors under a naming.
struct NamedTensors {
  TensorsByKey weights;
  TensorsByKey copies;  // of weights
};

Result<NamedTensors> TensorsUnder(const ModelSource& model, const layout::ResolvedLayout& like) {
  CKPT_ASSIGN_OR_RETURN(ModelView view,
                        ViewModel(model, like.naming, like.choices, MixedDtypes::kWiden));
  // A prefix is no part of a form: the view has the table's first one.
  NamedTensors named;
  for (std::size_t t = 0; t < view.tensors.size(); ++t) {
    TargetTensor& tensor = view.tensors[t];
    std::string key = like.prefix + tensor.key.substr(view.layout.prefix.size());
    TensorAsked asked{.key = key,
                      .dtype = tensor.dtype,
                      .shape = std::move(tensor.shape),
                      .recipe = std::move(view.recipes[t])};
    (view.derived[t] ? named.copies : named.weights).emplace(std::move(key), std::move(asked));
  }
  return named;
}

// Pairs of each copy that `model` stores with what `other` holds of its original. `made` is `other`
// in the naming of `model`.
std::vector<std::pair<TensorAsked, TensorAsked>> StoredCopies(const ModelSource& model,
                                                              NamedTensors& made) {
  std::vector<std::pair<TensorAsked, TensorAsked>> pairs;
  for (const std::uint32_t copy : model.match.derived_present) {
    TensorAsked stored = AskAsStored(model.source().index(), model.match.positions[copy]);
    const auto other = made.copies.find(stored.key);
    if (other == made.copies.end()) continue;  // the original is absent there
    pairs.emplace_back(std::move(stored), other->second);
  }
  return pairs;
}

Status PairModels(const ModelSource& a, const ModelSource& b, Comparison& comparison) {
  const layout::ResolvedLayout& form_a = a.match.layout;
  const layout::ResolvedLayout& form_b = b.match.layout;
  comparison.is_of_models = true;
  comparison.naming = form_a.naming;
  comparison.a.left_out = a.left_out;
  comparison.b.left_out = b.left_out;
  CKPT_ASSIGN_OR_RETURN(NamedTensors own, TensorsUnder(a, form_a));
  CKPT_ASSIGN_OR_RETURN(NamedTensors other, TensorsUnder(PaddedLike(b, a), form_a));
  PairUp(std::move(own.weights), std::move(other.weights), comparison);

  std::set<std::string, std::less<>> keys;
  for (const TensorPair& pair : comparison.pairs) keys.insert(pair.key);
  for (auto& [stored, made] : StoredCopies(a, other)) {
    if (!keys.insert(stored.key).second) continue;
    comparison.pairs.push_back({stored.key, std::move(stored), std::move(made)});
  }
  if (!b.match.derived_present.empty()) {
    CKPT_ASSIGN_OR_RETURN(NamedTensors a_as_b, TensorsUnder(PaddedLike(a, b), form_b));
    for (auto& [stored, made] : StoredCopies(b, a_as_b)) {
      if (!keys.insert(stored.key).second) continue;
      comparison.pairs.push_back({stored.key, std::move(made), std::move(stored)});
    }
  }
  std::ranges::sort(comparison.pairs, {}, &TensorPair::key);
  return OkStatus();
}

}  // namespace

Result<Comparison> CompareCheckpoints(Storage& storage, const Opened& a, const Opened& b,
                                      const CompareOptions& options) {
  Comparison comparison;
  const bool asks_for_models = !options.mapping.empty();
  if (!asks_for_models && HasSameKeys(a->source->index(), b->source->index())) {
    PairStored(*a->source, *b->source, comparison);
    return comparison;
  }
  Result<ModelSource> model_a = Understand(storage, a, options, Path());
  Result<ModelSource> model_b = Understand(storage, b, options, Path());
  BorrowAssets(storage, a, options, model_b, model_a);
  BorrowAssets(storage, b, options, model_a, model_b);
  for (const Result<ModelSource>* model : {&model_a, &model_b}) {
    if (model->ok()) continue;
    if (asks_for_models || model->status().kind() == ErrorKind::kChecksum) {
      return model->status();
    }
  }
  if (model_a.ok() && model_b.ok() &&
      (asks_for_models || !HasForm(model_a->match.layout, model_b->match.layout))) {
    CKPT_RETURN_IF_ERROR(PairModels(*model_a, *model_b, comparison));
    return comparison;
  }
  if (!model_a.ok()) comparison.a.not_a_model = std::move(model_a).status();
  if (!model_b.ok()) comparison.b.not_a_model = std::move(model_b).status();
  PairStored(*a->source, *b->source, comparison);
  return comparison;
}

}  // namespace ckpt

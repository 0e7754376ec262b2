#include "converters/verbs/internal/pair_models.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/layout/affine.h"

namespace ckpt {
namespace {

constexpr char kPaddedVocabulary[] = "padded_vocab_size";

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

}  // namespace

void PairUp(TensorsByKey a, TensorsByKey b, std::vector<TensorPair>& pairs,
            std::vector<TensorAsked>& only_a, std::vector<TensorAsked>& only_b) {
  for (auto& [key, asked] : a) {
    const auto other = b.find(key);
    if (other == b.end()) {
      only_a.push_back(std::move(asked));
      continue;
    }
    pairs.push_back({key, std::move(asked), std::move(other->second)});
    b.erase(other);
  }
  for (auto& [key, asked] : b) only_b.push_back(std::move(asked));
}

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

std::vector<std::size_t> StoredPositions(const TensorAsked& asked) {
  std::vector<std::size_t> positions;
  for (const layout::Nest& nest : asked.recipe.nests) {
    if (nest.is_zero_fill()) continue;
    if (std::ranges::find(positions, nest.source) == positions.end()) {
      positions.push_back(nest.source);
    }
  }
  return positions;
}

Result<ModelPairs> PairModels(const ModelSource& a, const ModelSource& b) {
  CKPT_ASSIGN_OR_RETURN(NamedTensors own, TensorsUnder(a, a.match.layout));
  CKPT_ASSIGN_OR_RETURN(NamedTensors other, TensorsUnder(PaddedLike(b, a), a.match.layout));
  ModelPairs paired;
  for (auto& [stored, made] : StoredCopies(a, other)) {
    paired.copies_in_a.push_back({stored.key, std::move(stored), std::move(made)});
  }
  if (!b.match.derived_present.empty()) {
    CKPT_ASSIGN_OR_RETURN(NamedTensors a_as_b, TensorsUnder(PaddedLike(a, b), b.match.layout));
    for (auto& [stored, made] : StoredCopies(b, a_as_b)) {
      paired.copies_in_b.push_back({stored.key, std::move(made), std::move(stored)});
    }
  }
  PairUp(std::move(own.weights), std::move(other.weights), paired.weights, paired.only_a,
         paired.only_b);
  std::ranges::sort(paired.copies_in_a, {}, &TensorPair::key);
  std::ranges::sort(paired.copies_in_b, {}, &TensorPair::key);
  return paired;
}

}  // namespace ckpt

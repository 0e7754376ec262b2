// Which tensors of two models stand for each other, under whatever names they are stored.
#ifndef CKPT_CONVERTERS_VERBS_INTERNAL_PAIR_MODELS_H_
#define CKPT_CONVERTERS_VERBS_INTERNAL_PAIR_MODELS_H_

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "converters/verbs/comparison.h"
#include "converters/verbs/model_source.h"
#include "core/base/result.h"
#include "core/checkpoint/index.h"

namespace ckpt {

using TensorsByKey = std::map<std::string, TensorAsked, std::less<>>;

// Adds what both have to `pairs`, and the rest to `only_a` and `only_b`.
void PairUp(TensorsByKey a, TensorsByKey b, std::vector<TensorPair>& pairs,
            std::vector<TensorAsked>& only_a, std::vector<TensorAsked>& only_b);

// Keys are those of A's form. All are in byte order of the key.
struct ModelPairs {
  std::vector<TensorPair> weights;
  std::vector<TensorPair> copies_in_a;  // that A stores of other tensors
  std::vector<TensorPair> copies_in_b;  // likewise, under B's keys
  std::vector<TensorAsked> only_a;
  std::vector<TensorAsked> only_b;
};

// `b` in the names and shapes of `a`. Rows that pad a vocabulary and that a model is understood
// without are zeros. A pure function. Errors: those of ViewModel.
Result<ModelPairs> PairModels(const ModelSource& a, const ModelSource& b);

// A stored tensor as it is.
[[nodiscard]] TensorAsked AskAsStored(const CheckpointIndex& index, std::size_t position);

// Where the tensors that `asked` is made of are in the index, each once.
[[nodiscard]] std::vector<std::size_t> StoredPositions(const TensorAsked& asked);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_VERBS_INTERNAL_PAIR_MODELS_H_

// Digests of a model's weights under a naming that its checkpoint need not have.
#ifndef CKPT_CONVERTERS_VERBS_MODEL_DIGEST_H_
#define CKPT_CONVERTERS_VERBS_MODEL_DIGEST_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "converters/verbs/model_source.h"
#include "core/base/hash.h"
#include "core/checkpoint/digest.h"
#include "core/exec/progress.h"
#include "core/plan/conversion_plan.h"
#include "core/tensor/shape.h"

namespace ckpt {

// Digests that were computed already, of tensors that recipes make of one source. Two tensors of
// the same recipe, shape and dtype are the same bytes, whatever they are called.
class KnownDigests {
 public:
  // The digest (hex) of the tensor of this shape in the recipe's dtype. `recipe` must outlive this.
  void Add(const TensorRecipe& recipe, DimsView shape, std::string hex);
  [[nodiscard]] std::optional<std::string> Find(const TensorRecipe& recipe, DimsView shape) const;

 private:
  struct Known {
    const TensorRecipe* recipe = nullptr;
    Dims shape;
    std::string hex;
  };
  std::multimap<std::uint32_t, Known> known_;  // by the source of the recipe's first nest
};

// Finds the digest (hex) of the tensor of `shape` that `recipe` makes, if it is known.
using FindDigest =
    std::function<std::optional<std::string>(const TensorRecipe& recipe, DimsView shape)>;

struct ModelDigestOptions {
  // The word of a KnownNaming. Empty: the published one, or the first that can hold the model, of
  // which not all is on the hub. Every choice takes its first value.
  std::string as = {};
  HashAlgorithm algorithm = HashAlgorithm::kXxh3;
  std::uint64_t memory_budget_bytes = std::uint64_t{1} << 30;
  int threads = 1;
  // Of the model's source, by `algorithm`: these tensors are not read. Null: none.
  FindDigest known = nullptr;
  ProgressSink* progress = nullptr;
  std::string_view phase = "digest";  // what `progress` calls it
  std::stop_token stop = {};
};

struct ModelDigest {
  std::string checkpoint;             // one value over all tensors
  std::vector<TensorDigest> tensors;  // in byte order of the key
  std::size_t left_out =
      0;  // tensors and objects of the checkpoint that are not weights of the model
  // Why the names may not be those that the model is published with.
  std::vector<Problem> warnings;
};

// The weights alone, in the stored dtype, under the names of `as` (the published: one tensor per
// expert, no tied head; the others: Transformer Engine's names, grouped experts), whatever form the
// source has. Copies that the source stores of other tensors are compared with them.
// Errors: those of ViewModel and StreamRecipe; kUsage (another `as`); kValueMismatch (a copy
// differs from its original).
Result<ModelDigest> DigestModel(const ModelSource& model, const ModelDigestOptions& options);

// The tensors that DigestModel digests: those of the view that are not derived. `as`: see
// ModelDigestOptions. Errors: those of ViewModel; kUsage (another `as`).
Result<ModelView> ViewToDigest(const ModelSource& model, std::string_view as);

// Whether every stored copy of another tensor (a tied head) holds the same values as its original.
// Reads only these. Errors: kValueMismatch, all of them; those of StreamTensor.
Status CheckCopies(const ModelSource& model, std::uint64_t memory_budget_bytes);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_VERBS_MODEL_DIGEST_H_

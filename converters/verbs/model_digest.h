// Digests of a model's weights under a naming that its checkpoint need not have.
#ifndef CKPT_CONVERTERS_VERBS_MODEL_DIGEST_H_
#define CKPT_CONVERTERS_VERBS_MODEL_DIGEST_H_

#include <cstdint>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "converters/verbs/model_source.h"
#include "core/base/hash.h"
#include "core/checkpoint/digest.h"
#include "core/exec/progress.h"

namespace ckpt {

struct ModelDigestOptions {
  // The word of a KnownNaming; empty: the published one. Every choice takes its first value.
  std::string as = {};
  HashAlgorithm algorithm = HashAlgorithm::kXxh3;
  std::uint64_t memory_budget_bytes = std::uint64_t{1} << 30;
  int threads = 1;
  ProgressSink* progress = nullptr;
  std::string_view phase = "digest";  // what `progress` calls it
  std::stop_token stop = {};
};

struct ModelDigest {
  std::string checkpoint;             // one value over all tensors
  std::vector<TensorDigest> tensors;  // in byte order of the key
  std::size_t left_out =
      0;  // tensors and objects of the checkpoint that are not weights of the model
};

// The weights alone, in the stored dtype, under the names of `as` (the published: one tensor per
// expert, no tied head; the others: Transformer Engine's names, grouped experts), whatever form the
// source has. Copies that the source stores of other tensors are compared with them.
// Errors: those of ViewModel and StreamRecipe; kUsage (another `as`); kValueMismatch (a copy
// differs from its original).
Result<ModelDigest> DigestModel(const ModelSource& model, const ModelDigestOptions& options);

// Whether every stored copy of another tensor (a tied head) holds the same values as its original.
// Reads only these. Errors: kValueMismatch, all of them; those of StreamTensor.
Status CheckCopies(const ModelSource& model, std::uint64_t memory_budget_bytes);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_VERBS_MODEL_DIGEST_H_

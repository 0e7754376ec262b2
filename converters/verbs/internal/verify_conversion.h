// Proof of a conversion: that the source is what its manifest says, and the result what the source
// is.
#ifndef CKPT_CONVERTERS_VERBS_INTERNAL_VERIFY_CONVERSION_H_
#define CKPT_CONVERTERS_VERBS_INTERNAL_VERIFY_CONVERSION_H_

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "converters/verbs/convert.h"
#include "converters/verbs/model_digest.h"
#include "core/base/result.h"
#include "core/checkpoint/digesting_source.h"
#include "core/exec/executor.h"
#include "core/io/storage.h"

namespace ckpt {

// XXH3 of the model as `digest --as hf` gives it. They differ only where tensors were cast.
struct VerifiedDigests {
  std::string source;
  std::string target;
};

// A source with a manifest of ours must be what the manifest says. Tensors' bytes are left to
// whoever copies them. OK without a manifest, and where `options` ask for no verification. Errors:
// as VerifyManifest finds them; those of reading.
Status CheckSourceManifest(Storage& storage, const PreparedConversion& prepared,
                           const ConvertOptions& options);

// Tensors of the source (positions in its index) of which the proof needs the digest as they are
// stored, while the target has their elements in another order or dtype. If they are digested while
// they are converted, they need not be read again for it.
// Errors: those of ViewToDigest.
Result<std::vector<std::uint32_t>> TensorsToDigest(const PreparedConversion& prepared,
                                                   const ConvertOptions& options);

// Tensors of the target (positions in its plan) that need not be read back when they are written,
// because the digest of the result will be computed of all their elements. A forecast: what it
// misses is read twice, and what is in it and is not digested then, is read then.
[[nodiscard]] std::set<std::size_t> TensorsToReadLater(const PreparedConversion& prepared,
                                                       const ConvertOptions& options);

// Names every tensor that is another one, or that only one of the two has, in `target`, the result
// that was read back. Errors: kValueMismatch, kMissing, one for each of them.
Status CompareModels(const ModelDigest& source, const ModelDigest& target, const Path& result);

// Reads the finished result in `staging` through its own reader and compares the model in it with
// the source's; before that, the software that defines the format proves it, where there is one.
// Values that were cast on request are compared with what the cast gives of the
// source's. `read`: the source as it was read for `executed`. Errors: those of CompareModels where
// the result is not the source; those of opening and reading it.
Result<VerifiedDigests> VerifyConversion(Storage& storage, const PreparedConversion& prepared,
                                         const ConvertOptions& options,
                                         const ExecuteResult& executed, const DigestingSource& read,
                                         const Path& staging);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_VERBS_INTERNAL_VERIFY_CONVERSION_H_

// What an array holds that belongs to no checkpoint index: a tensor inside a pickled object.
#ifndef CKPT_FORMATS_TORCH_SAVE_INTERNAL_ARRAY_DIGEST_H_
#define CKPT_FORMATS_TORCH_SAVE_INTERNAL_ARRAY_DIGEST_H_

#include <optional>
#include <string>

#include "core/base/hash.h"
#include "core/base/result.h"
#include "core/checkpoint/source.h"
#include "core/tensor/shape.h"

namespace ckpt::torch_save {

// Hash of the logical elements in C order, as DigestTensor computes it. Errors: kTruncated, kIo.
Result<std::string> DigestArray(const StoredArray& array, DimsView shape, HashAlgorithm algorithm);

// The element of an array that has one; nothing if it is no number. Errors: kTruncated, kIo.
Result<std::optional<double>> NumberIn(const StoredArray& array, DimsView shape);

}  // namespace ckpt::torch_save

#endif  // CKPT_FORMATS_TORCH_SAVE_INTERNAL_ARRAY_DIGEST_H_

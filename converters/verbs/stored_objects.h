// What a training run stores beside its tensors, as plain values.
#ifndef CKPT_CONVERTERS_VERBS_STORED_OBJECTS_H_
#define CKPT_CONVERTERS_VERBS_STORED_OBJECTS_H_

#include <cstdint>
#include <string_view>

#include "core/base/result.h"
#include "core/checkpoint/source.h"
#include "core/layout/value.h"

namespace ckpt {

// The members of the `args` that Megatron stores: an object of their own (fsdp_dtensor), or in the common state
// (torch_dist). Tuples are lists, dtypes their names. Nothing if the checkpoint has none.
//
// Errors: those of CheckpointSource::ReadObject, kBadMetadata.
Result<layout::Configuration> ReadMegatronArgs(const CheckpointSource& source);

// An object that is an integer. Errors: kMissing (there is none of this key), those of CheckpointSource::ReadObject,
// kBadMetadata (it is no integer).
Result<std::int64_t> ReadStoredInteger(const CheckpointSource& source, std::string_view key);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_VERBS_STORED_OBJECTS_H_

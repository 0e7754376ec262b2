// Objects of a checkpoint as plain values.
#ifndef CKPT_CORE_TRAINING_STORED_VALUES_H_
#define CKPT_CORE_TRAINING_STORED_VALUES_H_

#include <cstdint>
#include <string_view>

#include "core/base/result.h"
#include "core/checkpoint/source.h"
#include "core/layout/value.h"

namespace ckpt {

// An object that is an integer. Errors: kMissing (there is none of this key), those of CheckpointSource::ReadObject,
// kBadMetadata (it is of another kind).
Result<std::int64_t> ReadStoredInteger(const CheckpointSource& source, std::string_view key);

// The members of an object whose flattened names begin with `prefix`, under the rest of them. Tuples are lists, dtypes
// their names, in the order of their names. Nothing if there is no such object. Errors: those of CheckpointSource::ReadObject, kBadMetadata.
Result<layout::Configuration> ReadStoredMembers(const CheckpointSource& source,
                                                std::string_view key, std::string_view prefix);

}  // namespace ckpt

#endif  // CKPT_CORE_TRAINING_STORED_VALUES_H_

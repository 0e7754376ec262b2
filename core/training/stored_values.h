// Reads objects of a checkpoint as plain values.
#ifndef CKPT_CORE_TRAINING_STORED_VALUES_H_
#define CKPT_CORE_TRAINING_STORED_VALUES_H_

#include <cstdint>
#include <string_view>

#include "core/base/result.h"
#include "core/checkpoint/source.h"
#include "core/layout/value.h"

namespace ckpt {

// An object that is an integer. Errors: kMissing (no object has this key), those of
// CheckpointSource::ReadObject, kBadMetadata (it has another kind).
Result<std::int64_t> ReadStoredInteger(const CheckpointSource& source, std::string_view key);

// The members of an object whose flattened names begin with `prefix`, named by the rest and sorted.
// Tuples become lists, dtypes their names. Nothing if there is no such object. Errors: those of
// CheckpointSource::ReadObject, kBadMetadata.
Result<layout::Configuration> ReadStoredMembers(const CheckpointSource& source,
                                                std::string_view key, std::string_view prefix);

}  // namespace ckpt

#endif  // CKPT_CORE_TRAINING_STORED_VALUES_H_

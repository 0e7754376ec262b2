// Which directories a new checkpoint may take the place of.
#ifndef CKPT_CORE_CHECKPOINT_REPLACEABLE_H_
#define CKPT_CORE_CHECKPOINT_REPLACEABLE_H_

#include "core/base/status.h"
#include "core/io/storage.h"

namespace ckpt {

// OK for an empty directory, and for a checkpoint that these tools made: its sidecar lies in the
// directory or in its `release/`, and no training run has saved an `iter_*` beside it.
//
// Errors: kAlreadyExists (names entries that would be lost), kIo.
Status CheckReplaceable(Storage& storage, const Path& directory);

}  // namespace ckpt

#endif  // CKPT_CORE_CHECKPOINT_REPLACEABLE_H_

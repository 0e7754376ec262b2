// Entries that were found in a checkpoint and could not be read.
#ifndef CKPT_CORE_CHECKPOINT_UNLISTED_H_
#define CKPT_CORE_CHECKPOINT_UNLISTED_H_

#include <vector>

#include "core/base/status.h"
#include "core/checkpoint/index.h"

namespace ckpt {

// The errors of the index about keys that are neither tensors nor objects of it, in their order.
[[nodiscard]] std::vector<Problem> ErrorsOfUnlisted(const CheckpointIndex& index);

}  // namespace ckpt

#endif  // CKPT_CORE_CHECKPOINT_UNLISTED_H_

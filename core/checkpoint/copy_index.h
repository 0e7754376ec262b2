// Copies an index in parts, for sources that show another one with changes.
#ifndef CKPT_CORE_CHECKPOINT_COPY_INDEX_H_
#define CKPT_CORE_CHECKPOINT_COPY_INDEX_H_

#include "core/checkpoint/index.h"

namespace ckpt {

// Files, encodings, problems, and how ranks saved. REQUIRES: `to` is empty, so that all keep their
// numbers.
void BeginCopy(const CheckpointIndex& from, IndexBuilder& to);

// A tensor of `from`, its chunks in their order. REQUIRES: BeginCopy.
void CopyTensor(const CheckpointIndex& from, const GlobalTensor& tensor, IndexBuilder& to);

// All objects and their copies. REQUIRES: BeginCopy.
void CopyObjects(const CheckpointIndex& from, IndexBuilder& to);

}  // namespace ckpt

#endif  // CKPT_CORE_CHECKPOINT_COPY_INDEX_H_

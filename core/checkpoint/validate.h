// Checks a checkpoint's metadata for contradictions, and against the sizes of its files. Reads no
// tensor.
#ifndef CKPT_CORE_CHECKPOINT_VALIDATE_H_
#define CKPT_CORE_CHECKPOINT_VALIDATE_H_

#include <vector>

#include "core/base/status.h"
#include "core/checkpoint/source.h"

namespace ckpt {

// Everything that is wrong with the index, its own problems() first. If there is no error, every
// element of every tensor is stored exactly once (or in copies, whose values are not compared:
// CompareCopies does), in bytes that exist.
//
//   kResource      the byte size of a shape overflows; chunks too tangled to prove the cover
//   kBadMetadata   a chunk has another number of dims than its tensor, or a negative size
//   kOutOfRange    a chunk outside its tensor, or bytes outside their file
//   kOverlap       two chunks share elements; as a warning: the same chunk listed twice in one file
//   kCoverage      elements that no chunk holds
//   kMissingFile   a file does not exist: one problem for each tensor or object that needs it
//   kTruncated     a file ends before an item that follows the others (EntryMap): it was longer
//
// Cost: one FileSize per file; about 0.1 s for a million chunks.
[[nodiscard]] std::vector<Problem> ValidateIndex(const CheckpointSource& source);

}  // namespace ckpt

#endif  // CKPT_CORE_CHECKPOINT_VALIDATE_H_

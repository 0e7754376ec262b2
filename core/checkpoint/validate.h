// Checks of a checkpoint's metadata against itself and against the sizes of its files. No tensor is read.
#ifndef CKPT_CORE_CHECKPOINT_VALIDATE_H_
#define CKPT_CORE_CHECKPOINT_VALIDATE_H_

#include <vector>

#include "core/base/status.h"
#include "core/checkpoint/source.h"

namespace ckpt {

// Everything that is wrong with the index, its own problems() first. No error among them means:
// every element of every tensor is stored exactly once (or in equal replicas), in bytes that exist.
//
//   kResource      a shape whose byte size overflows; an arrangement of chunks too tangled to prove
//   kBadMetadata   a chunk with another number of dims than its tensor, or a negative size
//   kOutOfRange    a chunk outside its tensor, or bytes outside their file
//   kOverlap       two chunks that share elements; as a warning: the same chunk listed twice in one file
//   kCoverage      elements that no chunk holds
//   kMissingFile   a file that is not there: a problem for each tensor or object that needs it
//   kTruncated     a file that ends before the bytes of an item that follows the others (EntryMap): it was longer
//
// Cost: one FileSize a file; about 0.1 s for a million chunks.
[[nodiscard]] std::vector<Problem> ValidateIndex(const CheckpointSource& source);

}  // namespace ckpt

#endif  // CKPT_CORE_CHECKPOINT_VALIDATE_H_

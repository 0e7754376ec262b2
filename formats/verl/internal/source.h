// The files of all ranks as one checkpoint.
#ifndef CKPT_FORMATS_VERL_INTERNAL_SOURCE_H_
#define CKPT_FORMATS_VERL_INTERNAL_SOURCE_H_

#include <memory>

#include "core/base/result.h"
#include "core/checkpoint/source.h"
#include "core/io/storage.h"

namespace ckpt::verl {

// Tensors have the names and shapes that the ranks' placements say.
//
// Errors: those of FindModelFiles, of TorchSaveSource::Open and of RankParts, for all files at
// once. What concerns single tensors goes to index().problems(): kMissing (a rank has no part of
// it), kBadMetadata (the ranks describe it differently, or a rank has a place that no mesh of so
// many has), kResource (its size overflows), kShapeMismatch (a part does not fit its place).
Result<std::unique_ptr<CheckpointSource>> OpenSource(Storage& storage, const Path& directory);

}  // namespace ckpt::verl

#endif  // CKPT_FORMATS_VERL_INTERNAL_SOURCE_H_

// The files of Megatron's ranks as one checkpoint.
#ifndef CKPT_FORMATS_MP_RANK_INTERNAL_SOURCE_H_
#define CKPT_FORMATS_MP_RANK_INTERNAL_SOURCE_H_

#include <memory>

#include "core/base/result.h"
#include "core/checkpoint/source.h"
#include "core/io/storage.h"

namespace ckpt::mp_rank {

// The model as one rank without parallelism would have saved it: `model.decoder.layers.…`, with the
// layers' numbers in the whole model; what the optimizers keep for its parameters, under the keys
// of Megatron-Core: `optimizer.state.exp_avg.decoder.layers.…`, and `common_state` with the first
// rank's arguments, progress and groups. If the optimizer cannot be read, a warning says why, and
// the small objects are those of the first rank. A warning names what is not read, such as random
// numbers, with its bytes.
//
// Errors: those of FindRankDirectories, TorchSaveSource::Open and RankParts, for all files at once;
// kMissing (no arguments, or they do not say what is needed), kUnsupported (a version of the
// checkpoint before 3), kBadMetadata (stages of another model, experts that ranks cannot share).
// What concerns single tensors goes to index().problems(): kMissing (a rank has no part of it),
// kBadMetadata and kShapeMismatch (parts that do not fit each other), kUnsupported (how ranks
// divide it is not known).
Result<std::unique_ptr<CheckpointSource>> OpenSource(Storage& storage, const Path& directory);

}  // namespace ckpt::mp_rank

#endif  // CKPT_FORMATS_MP_RANK_INTERNAL_SOURCE_H_

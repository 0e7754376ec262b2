// The buffers of Megatron's distributed optimizer (dp_reshardable), seen as tensors of its
// parameters.
#ifndef CKPT_FORMATS_TORCH_DIST_INTERNAL_UNPACKED_BUFFERS_H_
#define CKPT_FORMATS_TORCH_DIST_INTERNAL_UNPACKED_BUFFERS_H_

#include <memory>

#include "core/base/result.h"
#include "core/checkpoint/source.h"
#include "core/checkpoint/write_plan.h"
#include "core/training/rank_buffers.h"

namespace ckpt::torch_dist {

// The checkpoint with the keys of the form fully_reshardable, `optimizer.state.<field>.<weight>`,
// in place of its buffers, which have a tensor for each group of ranks, dtype and bucket:
// `optimizer.distributed.dp_group_idx_G.gbuf_idx_B.dtype_(…).bucket_idx_K.<field>`. The source
// itself if it has none.
//
// What lies where is not stored. A parameter's exact values round to its weight, which is read for
// some elements of each; FindOrder says the rest.
//
// Experts that are one parameter of a rank (GroupedMLP) are read, too, beside weights that have one
// key for all experts.
//
// Errors: kUnsupported (buffers of weights of a dtype that is not converted; exact values that
// round to no weight; two parameters that fit), kMissing (a buffer without exact values, a weight
// that has a part of its state), kBadMetadata, and those of CheckpointSource::Locate.
// Cost: a few small reads for each parameter of each rank; the whole items if these carry
// checksums.
Result<std::shared_ptr<const CheckpointSource>> UnpackBuffers(
    std::shared_ptr<const CheckpointSource> source);

// The buffers of a checkpoint that UnpackBuffers made, with what it found in them. Of any other
// none, and none if all experts of a layer are one parameter in them, which has its elements in
// another order than the weight.
[[nodiscard]] RankBuffers BuffersOf(const CheckpointSource& source);

// Which parts of such a checkpoint's tensors lie in which buffer, every copy that ranks have of one
// included. None where BuffersOf has none.
[[nodiscard]] PackedParts PartsOfBuffers(const CheckpointSource& source);

}  // namespace ckpt::torch_dist

#endif  // CKPT_FORMATS_TORCH_DIST_INTERNAL_UNPACKED_BUFFERS_H_

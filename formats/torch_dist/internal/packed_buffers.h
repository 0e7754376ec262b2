// What an optimizer keeps for parameters, packed into the buffers of ranks (dp_reshardable): the
// way back of UnpackBuffers.
#ifndef CKPT_FORMATS_TORCH_DIST_INTERNAL_PACKED_BUFFERS_H_
#define CKPT_FORMATS_TORCH_DIST_INTERNAL_PACKED_BUFFERS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/checkpoint/source.h"
#include "core/checkpoint/write_plan.h"
#include "core/layout/value.h"
#include "core/training/rank_buffers.h"
#include "core/training/training_run.h"

namespace ckpt::torch_dist {

struct PackedBuffers {
  std::vector<TargetTensor> tensors;  // buffers in place of the optimizer's
  PackedParts parts;                  // of every buffer
  // Where chunks of a buffer end, by key: where parameters begin and end.
  std::map<std::string, std::vector<std::int64_t>> chunk_ends;
};

// `tensors`: weights, and for each trained one a tensor for every field, `optimizer.state.<field>.
// <weight>`, as the form fully_reshardable has them.
//
// Errors: kUnsupported (the buffers have other parts than these weights or another dtype, or no
// place for what belongs to a weight; float16, with which Megatron stores the state of a loss
// scale), kDtypeMismatch (a buffer would have elements of several dtypes).
Result<PackedBuffers> PackBuffers(const RankBuffers& buffers, std::vector<TargetTensor> tensors);

// Whether experts have an optimizer of their own. Errors: kUnsupported (the buffers are those of
// other optimizers than one, or one of experts beside one of all other parameters).
Result<bool> HaveExpertOptimizer(const RankBuffers& buffers);

// That every tensor rank of every stage that `args` name has a buffer. Errors: kUnsupported.
Status CheckRanks(const RankBuffers& buffers, const layout::Configuration& args);

// What each group of ranks stores beside its buffers: the sizes of these, and the parameter groups.
// `run.args` say how many ranks divide a buffer. REQUIRES: PackBuffers takes them, and as GroupsOf.
[[nodiscard]] std::vector<PickledEntry> ObjectsBesideBuffers(const RankBuffers& buffers,
                                                             const TrainingRun& run,
                                                             bool have_expert_optimizer);

}  // namespace ckpt::torch_dist

#endif  // CKPT_FORMATS_TORCH_DIST_INTERNAL_PACKED_BUFFERS_H_

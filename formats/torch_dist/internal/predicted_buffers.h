// The buffers that Megatron's distributed optimizer makes on the ranks of a run.
#ifndef CKPT_FORMATS_TORCH_DIST_INTERNAL_PREDICTED_BUFFERS_H_
#define CKPT_FORMATS_TORCH_DIST_INTERNAL_PREDICTED_BUFFERS_H_

#include <span>

#include "core/base/result.h"
#include "core/checkpoint/write_plan.h"
#include "core/layout/value.h"
#include "core/training/rank_buffers.h"

namespace ckpt::torch_dist {

// Those of the ranks of which `args` tell, Megatron's arguments of the run: what they do not say is
// as Megatron has it by default. Parameters lie in the order of modules (module_order.h), by the
// rules of formats/megatron/buffer_layout.h. `tensors` are weights, and
// `optimizer.state.<field>.<weight>` of each trained one.
//
// Errors: kUnsupported (arguments from which no layout follows, such as those that divide layers
// among stages unequally; a weight whose place among the modules or whose division among tensor
// ranks is not known), kMissing (an argument without which equal parameters would be exchanged).
Result<RankBuffers> PredictBuffers(std::span<const TargetTensor> tensors,
                                   const layout::Configuration& args);

// That buffers of a run have parameters in the order in which the modules that `args` name register
// them. Errors: kUnsupported (these are others than those of the run).
Status CheckOrder(const RankBuffers& buffers, const layout::Configuration& args);

}  // namespace ckpt::torch_dist

#endif  // CKPT_FORMATS_TORCH_DIST_INTERNAL_PREDICTED_BUFFERS_H_

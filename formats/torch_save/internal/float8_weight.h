// What torchao makes of a weight that FSDP2 casts to float8 when it gathers it.
#ifndef CKPT_FORMATS_TORCH_SAVE_INTERNAL_FLOAT8_WEIGHT_H_
#define CKPT_FORMATS_TORCH_SAVE_INTERNAL_FLOAT8_WEIGHT_H_

#include "formats/pickle/graph.h"

namespace ckpt::torch_save {

// The weight itself, in the precision that the optimizer updates: the tensor inside a
// `torchao.float8.fsdp_utils.WeightWithDynamicFloat8CastTensor`, of the same size. Beside it the
// class keeps only how to cast. kNoNode of another node, and of kNoNode.
[[nodiscard]] pickle::NodeId WeightToCast(const pickle::Graph& graph, pickle::NodeId node);

}  // namespace ckpt::torch_save

#endif  // CKPT_FORMATS_TORCH_SAVE_INTERNAL_FLOAT8_WEIGHT_H_

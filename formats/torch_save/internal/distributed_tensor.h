// torch's DTensor in a pickle: the part of a tensor that one rank has, and how the ranks share it.
#ifndef CKPT_FORMATS_TORCH_SAVE_INTERNAL_DISTRIBUTED_TENSOR_H_
#define CKPT_FORMATS_TORCH_SAVE_INTERNAL_DISTRIBUTED_TENSOR_H_

#include <optional>

#include "formats/pickle/graph.h"

namespace ckpt::torch_save {

struct DistributedTensor {
  pickle::NodeId local = pickle::kNoNode;  // the rank's own tensor
  pickle::NodeId spec = pickle::kNoNode;   // mesh and placements
  pickle::NodeId size = pickle::kNoNode;   // of the whole tensor
  // Every element is in `local`, as it is: the rank was alone, or each rank had all of it.
  bool is_whole = false;
};

// What `_rebuild_from_type_v2(_rebuild_wrapper_subclass, DTensor, (…), state)` describes; nothing
// of another node.
[[nodiscard]] std::optional<DistributedTensor> DistributedTensorOf(const pickle::Graph& graph,
                                                                   pickle::NodeId node);

}  // namespace ckpt::torch_save

#endif  // CKPT_FORMATS_TORCH_SAVE_INTERNAL_DISTRIBUTED_TENSOR_H_

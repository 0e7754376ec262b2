// Tensors in a pickle whose class has no elements of its own: what they have are attributes.
#ifndef CKPT_FORMATS_TORCH_SAVE_INTERNAL_WRAPPER_SUBCLASS_H_
#define CKPT_FORMATS_TORCH_SAVE_INTERNAL_WRAPPER_SUBCLASS_H_

#include <optional>

#include "formats/pickle/graph.h"

namespace ckpt::torch_save {

struct WrapperSubclass {
  pickle::NodeId type = pickle::kNoNode;
  pickle::NodeId size = pickle::kNoNode;
  pickle::NodeId state = pickle::kNoNode;  // its attributes
};

// What `_rebuild_from_type_v2(_rebuild_wrapper_subclass, type, (type, dtype, size, …), state)`
// describes, or a parameter of one; nothing of another node.
[[nodiscard]] std::optional<WrapperSubclass> WrapperSubclassOf(const pickle::Graph& graph,
                                                               pickle::NodeId node);

// Whether `tensor` is what one of torch's functions rebuilds of this size,
// `_rebuild_tensor_v2(storage, offset, size, …)` and the like, or a parameter of it.
[[nodiscard]] bool IsTensorOfSize(const pickle::Graph& graph, pickle::NodeId tensor,
                                  pickle::NodeId size);

}  // namespace ckpt::torch_save

#endif  // CKPT_FORMATS_TORCH_SAVE_INTERNAL_WRAPPER_SUBCLASS_H_

#include "formats/torch_save/internal/float8_weight.h"

#include <optional>

#include "formats/torch_save/internal/object_attributes.h"
#include "formats/torch_save/internal/wrapper_subclass.h"

namespace ckpt::torch_save {

using pickle::Graph;
using pickle::kNoNode;
using pickle::NodeId;

NodeId WeightToCast(const Graph& graph, NodeId node) {
  const std::optional<WrapperSubclass> wrapper = WrapperSubclassOf(graph, node);
  if (!wrapper || !graph.IsGlobal(wrapper->type, "torchao.float8.fsdp_utils",
                                  "WeightWithDynamicFloat8CastTensor")) {
    return kNoNode;
  }
  const NodeId weight = AttributesIn(graph, wrapper->state).Find(graph, "_tensor");
  return IsTensorOfSize(graph, weight, wrapper->size) ? weight : kNoNode;
}

}  // namespace ckpt::torch_save

#include "formats/torch_save/internal/module_states.h"

namespace ckpt::torch_save {
namespace {

using pickle::Graph;
using pickle::kNoNode;
using pickle::NodeId;
using pickle::NodeKind;

bool IsModuleState(const Graph& graph, NodeId state) {
  return graph.kind(state) == NodeKind::kDict && graph.Find(state, "_parameters") != kNoNode &&
         graph.Find(state, "_buffers") != kNoNode && graph.Find(state, "_modules") != kNoNode;
}

}  // namespace

NodeId ModuleStates::Of(NodeId node) {
  if (graph_.kind(node) != NodeKind::kInstance) return kNoNode;
  const NodeId state = graph_.state(node);
  if (state == kNoNode) return kNoNode;
  Known& known = known_[state];
  if (known == Known::kNot) known = IsModuleState(graph_, state) ? Known::kYes : Known::kNo;
  return known == Known::kYes ? state : kNoNode;
}

}  // namespace ckpt::torch_save

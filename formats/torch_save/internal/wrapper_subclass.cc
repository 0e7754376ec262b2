#include "formats/torch_save/internal/wrapper_subclass.h"

#include <algorithm>
#include <cstddef>
#include <span>

#include "core/tensor/shape.h"

namespace ckpt::torch_save {
namespace {

using pickle::Graph;
using pickle::kNoNode;
using pickle::NodeId;
using pickle::NodeKind;

// Positions of arguments of `_rebuild_from_type_v2(function, type, args, state)`, of
// `_rebuild_wrapper_subclass(type, dtype, size, …)`, and of `_rebuild_tensor_v2(storage, offset,
// size, …)` and similar functions.
constexpr std::size_t kFromTypeArgs = 4;
constexpr std::size_t kWrapperSizeArg = 2;
constexpr std::size_t kTensorSizeArg = 2;

// Nothing of what is no call, and of kNoNode.
std::span<const NodeId> ArgsOf(const Graph& graph, NodeId call) {
  if (call == kNoNode || graph.kind(call) != NodeKind::kCall ||
      graph.kind(graph.args(call)) != NodeKind::kTuple) {
    return {};
  }
  return graph.items(graph.args(call));
}

// The tuple inside a torch.Size, or the tuple itself.
NodeId TupleOf(const Graph& graph, NodeId size) {
  const std::span<const NodeId> args = ArgsOf(graph, size);
  const bool is_size = args.size() == 1 && graph.IsGlobal(graph.callable(size), "torch", "Size");
  return is_size ? args[0] : size;
}

bool IsSameSize(const Graph& graph, NodeId a, NodeId b) {
  a = TupleOf(graph, a);
  b = TupleOf(graph, b);
  if (graph.kind(a) != NodeKind::kTuple || graph.kind(b) != NodeKind::kTuple) return false;
  if (graph.items(a).size() > kMaxDims) return false;
  return std::ranges::equal(graph.items(a), graph.items(b), [&](NodeId x, NodeId y) {
    return graph.kind(x) == NodeKind::kInt && graph.kind(y) == NodeKind::kInt &&
           graph.integer(x) == graph.integer(y);
  });
}

// The argument of `torch._utils._rebuild_parameter`, or the node itself.
NodeId WithoutParameter(const Graph& graph, NodeId node) {
  const std::span<const NodeId> args = ArgsOf(graph, node);
  const bool is_parameter =
      !args.empty() && graph.IsGlobal(graph.callable(node), "torch._utils", "_rebuild_parameter");
  return is_parameter ? args[0] : node;
}

bool IsRebuilt(const Graph& graph, NodeId call) {
  const NodeId function = graph.callable(call);
  return graph.kind(function) == NodeKind::kGlobal && graph.module(function) == "torch._utils" &&
         graph.name(function).starts_with("_rebuild_");
}

}  // namespace

std::optional<WrapperSubclass> WrapperSubclassOf(const Graph& graph, NodeId node) {
  node = WithoutParameter(graph, node);
  const std::span<const NodeId> args = ArgsOf(graph, node);
  if (args.size() < kFromTypeArgs ||
      !graph.IsGlobal(graph.callable(node), "torch._tensor", "_rebuild_from_type_v2") ||
      !graph.IsGlobal(args[0], "torch._utils", "_rebuild_wrapper_subclass") ||
      graph.kind(args[2]) != NodeKind::kTuple || graph.items(args[2]).size() <= kWrapperSizeArg) {
    return std::nullopt;
  }
  return WrapperSubclass{
      .type = args[1], .size = graph.items(args[2])[kWrapperSizeArg], .state = args[3]};
}

bool IsTensorOfSize(const Graph& graph, NodeId tensor, NodeId size) {
  tensor = WithoutParameter(graph, tensor);
  const std::span<const NodeId> args = ArgsOf(graph, tensor);
  return args.size() > kTensorSizeArg && IsRebuilt(graph, tensor) &&
         IsSameSize(graph, args[kTensorSizeArg], size);
}

}  // namespace ckpt::torch_save

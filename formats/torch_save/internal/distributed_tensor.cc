#include "formats/torch_save/internal/distributed_tensor.h"

#include <algorithm>
#include <span>
#include <string_view>

namespace ckpt::torch_save {
namespace {

using pickle::Graph;
using pickle::kNoNode;
using pickle::NodeId;
using pickle::NodeKind;

// Positions of arguments of `_rebuild_from_type_v2(function, type, args, state)` and
// `_rebuild_wrapper_subclass(type, dtype, size, …)`.
constexpr std::size_t kFromTypeArgs = 4;
constexpr std::size_t kSizeArg = 2;
// Position of an argument of `_rebuild_tensor_v2(storage, offset, size, …)` and similar functions.
constexpr std::size_t kLocalSizeArg = 2;

std::span<const NodeId> ArgsOf(const Graph& graph, NodeId call) {
  if (call == kNoNode || graph.kind(call) != NodeKind::kCall ||
      graph.kind(graph.args(call)) != NodeKind::kTuple) {
    return {};
  }
  return graph.items(graph.args(call));
}

// The class has had two places: torch.distributed._tensor.api and torch.distributed.tensor.
bool IsDTensorClass(const Graph& graph, NodeId node) {
  return graph.kind(node) == NodeKind::kGlobal && graph.name(node) == "DTensor" &&
         graph.module(node).starts_with("torch.distributed.");
}

// An attribute in the state that pickle stores: a dict, or a tuple of two dicts, of which the
// second one is for slots.
NodeId FindAttribute(const Graph& graph, NodeId state, std::string_view name) {
  if (graph.kind(state) == NodeKind::kDict) return graph.Find(state, name);
  if (graph.kind(state) != NodeKind::kTuple) return kNoNode;
  for (const NodeId part : graph.items(state)) {
    if (graph.kind(part) != NodeKind::kDict) continue;
    if (const NodeId found = graph.Find(part, name); found != kNoNode) return found;
  }
  return kNoNode;
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
  return std::ranges::equal(graph.items(a), graph.items(b), [&](NodeId x, NodeId y) {
    return graph.kind(x) == NodeKind::kInt && graph.kind(y) == NodeKind::kInt &&
           graph.integer(x) == graph.integer(y);
  });
}

// Whether no placement is partial. The elements of a partial one must be added to those of other
// ranks first.
bool KeepsElements(const Graph& graph, NodeId spec) {
  if (spec == kNoNode || graph.kind(spec) != NodeKind::kInstance || graph.state(spec) == kNoNode) {
    return false;
  }
  const NodeId placements = FindAttribute(graph, graph.state(spec), "placements");
  if (placements == kNoNode || graph.kind(placements) != NodeKind::kTuple) return false;
  return std::ranges::all_of(graph.items(placements), [&](NodeId placement) {
    const NodeKind kind = graph.kind(placement);
    if (kind != NodeKind::kInstance && kind != NodeKind::kCall) return false;
    const NodeId type = graph.callable(placement);
    return graph.kind(type) == NodeKind::kGlobal &&
           (graph.name(type) == "Shard" || graph.name(type) == "Replicate");
  });
}

}  // namespace

std::optional<DistributedTensor> DistributedTensorOf(const Graph& graph, NodeId node) {
  if (graph.kind(node) != NodeKind::kCall ||
      !graph.IsGlobal(graph.callable(node), "torch._tensor", "_rebuild_from_type_v2")) {
    return std::nullopt;
  }
  const std::span<const NodeId> args = ArgsOf(graph, node);
  if (args.size() < kFromTypeArgs || !IsDTensorClass(graph, args[1]) ||
      !graph.IsGlobal(args[0], "torch._utils", "_rebuild_wrapper_subclass") ||
      graph.kind(args[2]) != NodeKind::kTuple || graph.items(args[2]).size() <= kSizeArg) {
    return std::nullopt;
  }
  DistributedTensor tensor;
  tensor.local = FindAttribute(graph, args[3], "_local_tensor");
  tensor.spec = FindAttribute(graph, args[3], "_spec");
  tensor.size = graph.items(args[2])[kSizeArg];
  const std::span<const NodeId> local = ArgsOf(graph, tensor.local);
  tensor.is_whole = local.size() > kLocalSizeArg && KeepsElements(graph, tensor.spec) &&
                    IsSameSize(graph, local[kLocalSizeArg], tensor.size);
  return tensor;
}

}  // namespace ckpt::torch_save

#include "formats/torch_save/internal/distributed_tensor.h"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "core/tensor/shape.h"
#include "formats/torch_save/internal/object_attributes.h"

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
// Tensors may share long lists, and each would be gone through.
constexpr std::size_t kMaxMeshDims = 64;
constexpr std::size_t kMaxShards = std::size_t{1} << 16;  // of a tensor, on one rank

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

bool IsShardedTensorClass(const Graph& graph, NodeId node) {
  return graph.IsGlobal(node, "torch.distributed._shard.sharded_tensor.api", "ShardedTensor");
}

NodeId FindAttribute(const Graph& graph, NodeId state, std::string_view name) {
  return AttributesIn(graph, state).Find(graph, name);
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

// An attribute of an object that pickle made by its state; kNoNode if there is none.
NodeId AttributeOf(const Graph& graph, NodeId object, std::string_view name) {
  const bool has_state = object != kNoNode && graph.kind(object) == NodeKind::kInstance &&
                         graph.state(object) != kNoNode;
  return has_state ? FindAttribute(graph, graph.state(object), name) : kNoNode;
}

// The name of a placement's class; empty if it is no object.
std::string_view PlacementClass(const Graph& graph, NodeId placement) {
  const NodeKind kind = graph.kind(placement);
  if (kind != NodeKind::kInstance && kind != NodeKind::kCall) return {};
  const NodeId type = graph.callable(placement);
  return graph.kind(type) == NodeKind::kGlobal ? graph.name(type) : std::string_view();
}

// Of a tuple or list; nothing of another node.
std::span<const NodeId> ItemsOf(const Graph& graph, NodeId node) {
  const bool is_sequence = node != kNoNode && (graph.kind(node) == NodeKind::kTuple ||
                                               graph.kind(node) == NodeKind::kList);
  return is_sequence ? graph.items(node) : std::span<const NodeId>();
}

// Whether no placement is partial. The elements of a partial one must be added to those of other
// ranks first.
bool KeepsElements(const Graph& graph, NodeId spec) {
  const NodeId placements = AttributeOf(graph, spec, "placements");
  if (placements == kNoNode || graph.kind(placements) != NodeKind::kTuple) return false;
  if (graph.items(placements).size() > kMaxMeshDims) return false;
  return std::ranges::all_of(graph.items(placements), [&](NodeId placement) {
    const std::string_view name = PlacementClass(graph, placement);
    return name == "Shard" || name == "Replicate";
  });
}

// The argument of `torch._utils._rebuild_parameter`, or the node itself.
NodeId WithoutParameter(const Graph& graph, NodeId node) {
  const std::span<const NodeId> args = ArgsOf(graph, node);
  const bool is_parameter =
      !args.empty() && graph.IsGlobal(graph.callable(node), "torch._utils", "_rebuild_parameter");
  return is_parameter ? args[0] : node;
}

// The arguments of `_rebuild_from_type_v2(_rebuild_wrapper_subclass, type, (type, dtype, size, …),
// state)`, also inside a parameter; nothing of another node.
std::span<const NodeId> WrapperArgsOf(const Graph& graph, NodeId node) {
  node = WithoutParameter(graph, node);
  if (graph.kind(node) != NodeKind::kCall ||
      !graph.IsGlobal(graph.callable(node), "torch._tensor", "_rebuild_from_type_v2")) {
    return {};
  }
  const std::span<const NodeId> args = ArgsOf(graph, node);
  const bool is_wrapper = args.size() >= kFromTypeArgs &&
                          graph.IsGlobal(args[0], "torch._utils", "_rebuild_wrapper_subclass") &&
                          graph.kind(args[2]) == NodeKind::kTuple &&
                          graph.items(args[2]).size() > kSizeArg;
  return is_wrapper ? args : std::span<const NodeId>();
}

}  // namespace

std::optional<DistributedTensor> DistributedTensorOf(const Graph& graph, NodeId node) {
  const std::span<const NodeId> args = WrapperArgsOf(graph, node);
  if (args.empty() || !IsDTensorClass(graph, args[1])) return std::nullopt;
  DistributedTensor tensor;
  tensor.local = FindAttribute(graph, args[3], "_local_tensor");
  tensor.spec = FindAttribute(graph, args[3], "_spec");
  tensor.size = graph.items(args[2])[kSizeArg];
  const std::span<const NodeId> local = ArgsOf(graph, tensor.local);
  tensor.is_whole = local.size() > kLocalSizeArg && KeepsElements(graph, tensor.spec) &&
                    IsSameSize(graph, local[kLocalSizeArg], tensor.size);
  return tensor;
}

Result<RankPlacement> ReadPlacement(const Graph& graph, const DistributedTensor& tensor) {
  RankPlacement read;
  const std::span<const NodeId> placements =
      ItemsOf(graph, AttributeOf(graph, tensor.spec, "placements"));
  if (placements.size() > kMaxMeshDims) {
    return Error(ErrorKind::kBadItem, "a distributed tensor has more placements than a mesh dims")
        .Expected(fmt::format("at most {}", kMaxMeshDims))
        .Actual(fmt::format("{}", placements.size()));
  }
  for (const NodeId placement : placements) {
    const std::string_view name = PlacementClass(graph, placement);
    const NodeId dim = AttributeOf(graph, placement, "dim");
    if (name == "Shard" && dim != kNoNode && graph.kind(dim) == NodeKind::kInt) {
      read.cut_dims.emplace_back(graph.integer(dim));
    } else if (name == "Replicate") {
      read.cut_dims.emplace_back();
    } else {
      return Error(ErrorKind::kUnsupported, "a placement of a distributed tensor is not read")
          .Expected("Shard or Replicate")
          .Actual(std::string(name));
    }
  }
  const NodeId mesh = AttributeOf(graph, tensor.spec, "mesh");
  const std::span<const NodeId> positions =
      ItemsOf(graph, AttributeOf(graph, mesh, "_coordinate_on_dim"));
  if (positions.empty() || positions.size() != read.cut_dims.size()) {
    return Error(ErrorKind::kBadItem, "a rank's place in its mesh does not match the placements")
        .Expected(fmt::format("{} positions", read.cut_dims.size()))
        .Actual(fmt::format("{}", positions.size()));
  }
  for (const NodeId position : positions) {
    if (graph.kind(position) != NodeKind::kInt || graph.integer(position) < 0) {
      return Error(ErrorKind::kBadItem, "a rank's place in its mesh is not a list of positions");
    }
    read.coordinate.push_back(graph.integer(position));
  }
  return read;
}

Result<std::optional<ShardedTensor>> ShardedTensorOf(const Graph& graph, NodeId node) {
  const std::span<const NodeId> args = WrapperArgsOf(graph, node);
  if (args.empty() || !IsShardedTensorClass(graph, args[1])) return std::optional<ShardedTensor>();
  const Status malformed =
      Error(ErrorKind::kBadItem, "the state of a ShardedTensor is not one that torch stores");
  // (the rank's shards, metadata, ranks of the group, …)
  const std::span<const NodeId> state = ItemsOf(graph, args[3]);
  if (state.empty() || graph.kind(state[0]) != NodeKind::kList ||
      graph.items(state[0]).size() > kMaxShards) {
    return malformed;
  }
  ShardedTensor tensor{.size = graph.items(args[2])[kSizeArg]};
  for (const NodeId shard : graph.items(state[0])) {
    tensor.shards.push_back(
        {.local = AttributeOf(graph, shard, "tensor"),
         .offsets = AttributeOf(graph, AttributeOf(graph, shard, "metadata"), "shard_offsets")});
    if (tensor.shards.back().local == kNoNode || tensor.shards.back().offsets == kNoNode) {
      return malformed;
    }
  }
  return std::optional(std::move(tensor));
}

}  // namespace ckpt::torch_save

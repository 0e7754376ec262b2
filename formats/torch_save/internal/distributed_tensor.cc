#include "formats/torch_save/internal/distributed_tensor.h"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "formats/torch_save/internal/float8_weight.h"
#include "formats/torch_save/internal/object_attributes.h"
#include "formats/torch_save/internal/wrapper_subclass.h"

namespace ckpt::torch_save {
namespace {

using pickle::Graph;
using pickle::kNoNode;
using pickle::NodeId;
using pickle::NodeKind;

// Tensors may share long lists, and each would be gone through.
constexpr std::size_t kMaxMeshDims = 64;
constexpr std::size_t kMaxShards = std::size_t{1} << 16;  // of a tensor, on one rank

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

}  // namespace

std::optional<DistributedTensor> DistributedTensorOf(const Graph& graph, NodeId node) {
  const std::optional<WrapperSubclass> wrapper = WrapperSubclassOf(graph, node);
  if (!wrapper || !IsDTensorClass(graph, wrapper->type)) return std::nullopt;
  DistributedTensor tensor;
  tensor.local = FindAttribute(graph, wrapper->state, "_local_tensor");
  tensor.spec = FindAttribute(graph, wrapper->state, "_spec");
  tensor.size = wrapper->size;
  const NodeId weight = WeightToCast(graph, tensor.local);
  tensor.is_whole = KeepsElements(graph, tensor.spec) &&
                    IsTensorOfSize(graph, weight == kNoNode ? tensor.local : weight, tensor.size);
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
  const std::optional<WrapperSubclass> wrapper = WrapperSubclassOf(graph, node);
  if (!wrapper || !IsShardedTensorClass(graph, wrapper->type)) {
    return std::optional<ShardedTensor>();
  }
  const Status malformed =
      Error(ErrorKind::kBadItem, "the state of a ShardedTensor is not one that torch stores");
  // (the rank's shards, metadata, ranks of the group, …)
  const std::span<const NodeId> state = ItemsOf(graph, wrapper->state);
  if (state.empty() || graph.kind(state[0]) != NodeKind::kList ||
      graph.items(state[0]).size() > kMaxShards) {
    return malformed;
  }
  ShardedTensor tensor{.size = wrapper->size};
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

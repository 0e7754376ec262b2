#include "formats/torch_save/internal/object_attributes.h"

#include <cstddef>
#include <span>

namespace ckpt::torch_save {
namespace {

using pickle::Graph;
using pickle::kNoNode;
using pickle::NodeId;
using pickle::NodeKind;

constexpr std::size_t kMaxAttributes = 1024;

}  // namespace

NodeId ObjectAttributes::Find(const Graph& graph, std::string_view name) const {
  for (const NodeId dict : dicts) {
    const NodeId found = dict == kNoNode ? kNoNode : graph.Find(dict, name);
    if (found != kNoNode) return found;
  }
  return kNoNode;
}

ObjectAttributes AttributesIn(const Graph& graph, NodeId state) {
  const bool is_tuple = graph.kind(state) == NodeKind::kTuple;
  const std::span<const NodeId> parts = is_tuple ? graph.items(state) : std::span(&state, 1);
  ObjectAttributes attributes;
  attributes.is_all = parts.size() <= attributes.dicts.size();
  for (std::size_t i = 0; i < parts.size() && i < attributes.dicts.size(); ++i) {
    const NodeKind kind = graph.kind(parts[i]);
    const bool is_dict =
        kind == NodeKind::kDict && graph.items(parts[i]).size() <= 2 * kMaxAttributes;
    if (is_dict) attributes.dicts[i] = parts[i];
    attributes.is_all = attributes.is_all && (is_dict || kind == NodeKind::kNone);
  }
  return attributes;
}

}  // namespace ckpt::torch_save

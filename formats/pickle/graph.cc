#include "formats/pickle/graph.h"

#include <bit>

namespace ckpt::pickle {

std::string_view NodeKindName(NodeKind kind) {
  switch (kind) {
    case NodeKind::kNone:
      return "None";
    case NodeKind::kBool:
      return "bool";
    case NodeKind::kInt:
    case NodeKind::kBigInt:
      return "int";
    case NodeKind::kFloat:
      return "float";
    case NodeKind::kText:
      return "str";
    case NodeKind::kBytes:
      return "bytes";
    case NodeKind::kByteArray:
      return "bytearray";
    case NodeKind::kTuple:
      return "tuple";
    case NodeKind::kList:
      return "list";
    case NodeKind::kDict:
      return "dict";
    case NodeKind::kSet:
      return "set";
    case NodeKind::kFrozenSet:
      return "frozenset";
    case NodeKind::kGlobal:
      return "global";
    case NodeKind::kCall:
      return "call";
    case NodeKind::kInstance:
      return "instance";
    case NodeKind::kPersistent:
      return "persistent id";
    case NodeKind::kRecord:
      return "record";
  }
  return "record";
}

double Graph::number(NodeId node) const { return std::bit_cast<double>(nodes_[node].payload); }

std::string_view Graph::module(NodeId node) const { return globals_[global(node)].module; }

std::string_view Graph::name(NodeId node) const { return globals_[global(node)].name; }

bool Graph::IsGlobal(NodeId node, std::string_view module_name,
                     std::string_view global_name) const {
  return kind(node) == NodeKind::kGlobal && module(node) == module_name &&
         name(node) == global_name;
}

std::string Graph::QualifiedName(NodeId node) const {
  if (kind(node) == NodeKind::kCall || kind(node) == NodeKind::kInstance) node = callable(node);
  if (kind(node) != NodeKind::kGlobal) return {};
  return std::string(module(node)) + "." + std::string(name(node));
}

NodeId Graph::Find(NodeId dict, std::string_view key) const {
  const std::span<const NodeId> pairs = items(dict);
  for (std::size_t i = pairs.size(); i >= 2; i -= 2) {
    const NodeId candidate = pairs[i - 2];
    if (kind(candidate) == NodeKind::kText && text(candidate) == key) return pairs[i - 1];
  }
  return kNoNode;
}

std::vector<GlobalName> Graph::CalledGlobals() const {
  std::vector<GlobalName> called;
  for (const Global& global : globals_) {
    if (global.called) called.push_back({global.module, global.name});
  }
  return called;
}

}  // namespace ckpt::pickle

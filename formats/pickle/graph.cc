#include "formats/pickle/graph.h"

#include <bit>

namespace ckpt::pickle {
namespace {

// Calls of getattr inside each other. No program nests its classes deeper.
constexpr int kMaxNestedNames = 16;
constexpr std::size_t kMaxInnerNameBytes = 4096;

// Whether the node is getattr(something, "Name"), by which protocols below 4 name what is inside a
// class.
bool IsAttribute(const Graph& graph, NodeId node) {
  if (graph.kind(node) != NodeKind::kCall ||
      !graph.IsGlobal(graph.callable(node), "builtins", "getattr")) {
    return false;
  }
  const std::span<const NodeId> args = graph.items(graph.args(node));
  return args.size() == 2 && graph.kind(args[1]) == NodeKind::kText &&
         graph.text(args[1]).size() <= kMaxInnerNameBytes;
}

}  // namespace

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
  std::string inner;
  for (int depth = 0; depth < kMaxNestedNames && IsAttribute(*this, node); ++depth) {
    const std::span<const NodeId> parts = items(args(node));
    inner.insert(0, "." + std::string(text(parts[1])));
    node = parts[0];
  }
  if (kind(node) != NodeKind::kGlobal) return {};
  return std::string(module(node)) + "." + std::string(name(node)) + inner;
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

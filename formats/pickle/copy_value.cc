#include "formats/pickle/copy_value.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

#include "formats/pickle/globals.h"

namespace ckpt::pickle {
namespace {

// As deep as an object is rendered, whose calls are levels of their own here.
constexpr int kMaxCopyDepth = 600;

// The parts of a node that are written with it; kNoNode where one is absent.
std::vector<NodeId> PartsOf(const Graph& graph, NodeId node) {
  switch (graph.kind(node)) {
    case NodeKind::kTuple:
    case NodeKind::kList:
    case NodeKind::kDict:
    case NodeKind::kSet:
    case NodeKind::kFrozenSet: {
      const std::span<const NodeId> items = graph.items(node);
      return {items.begin(), items.end()};
    }
    case NodeKind::kCall:
    case NodeKind::kInstance:
      return {graph.callable(node), graph.args(node), graph.appended(node), graph.entries(node),
              graph.state(node)};
    case NodeKind::kNone:
    case NodeKind::kBool:
    case NodeKind::kInt:
    case NodeKind::kBigInt:
    case NodeKind::kFloat:
    case NodeKind::kText:
    case NodeKind::kBytes:
    case NodeKind::kByteArray:
    case NodeKind::kGlobal:
    case NodeKind::kPersistent:
    case NodeKind::kRecord:
      break;
  }
  return {};
}

// Numbers and names are as short as a reference to them.
bool IsWorthAReference(NodeKind kind) {
  constexpr std::array kShort = {NodeKind::kNone, NodeKind::kBool, NodeKind::kInt, NodeKind::kFloat,
                                 NodeKind::kGlobal};
  return std::ranges::find(kShort, kind) == kShort.end();
}

// Protocol 4 names it by a path, for which a GLOBAL of protocol 2 has no form.
bool IsInsideAClass(const Graph& graph, NodeId global) {
  return graph.name(global).find('.') != std::string_view::npos;
}

// A GLOBAL of protocol 2 ends at the line.
bool HasPlainName(const Graph& graph, NodeId global) {
  const auto is_plain = [](std::string_view name) {
    return !name.empty() && std::ranges::all_of(name, [](char c) { return c > ' ' && c != 0x7F; });
  };
  return is_plain(graph.module(global)) && is_plain(graph.name(global));
}

bool IsQuantizationScheme(std::string_view name) {
  constexpr std::array<std::string_view, 5> kSchemes = {
      "per_tensor_affine", "per_tensor_symmetric", "per_channel_affine", "per_channel_symmetric",
      "per_channel_affine_float_qparams"};
  return std::ranges::find(kSchemes, name) != kSchemes.end();
}

Status RefuseGlobal(const Graph& graph, NodeId global) {
  const std::string name = graph.QualifiedName(global);
  return Error(ErrorKind::kUnsafePickle, fmt::format("its pickle names {}", name)).Actual(name);
}

Status RefuseInnerClass(const Graph& graph, NodeId global) {
  return Error(ErrorKind::kUnsupported, "its class lies inside another class")
      .Actual(graph.QualifiedName(global));
}

class ValueCopy {
 public:
  ValueCopy(const Graph& graph, const ReferenceWriter& reference, PickleWriter& pickle)
      : graph_(graph), reference_(reference), pickle_(pickle) {}

  // How often each node below `root` is referred to: some counts as several.
  void Count(NodeId root) {
    std::vector<NodeId> open = {root};
    while (!open.empty()) {
      const NodeId node = open.back();
      open.pop_back();
      if (++times_[node] > 1) continue;
      for (const NodeId part : PartsOf(graph_, node)) {
        if (part != kNoNode) open.push_back(part);
      }
    }
  }

  Status Write(NodeId node, int depth) {
    const bool is_shared = times_[node] > 1 && IsWorthAReference(graph_.kind(node));
    if (!is_shared) return WriteNew(node, depth);
    if (const auto known = slots_.find(node); known != slots_.end()) {
      pickle_.Recall(known->second);
      return OkStatus();
    }
    CKPT_RETURN_IF_ERROR(WriteNew(node, depth));
    slots_.emplace(node, pickle_.Memoize());
    return OkStatus();
  }

 private:
  Status WriteNew(NodeId node, int depth);
  Status WriteItems(NodeId node, int depth) {
    for (const NodeId item : graph_.items(node)) CKPT_RETURN_IF_ERROR(Write(item, depth + 1));
    return OkStatus();
  }
  Status WriteTuple(NodeId node, int depth);
  Status WriteSet(std::string_view name, NodeId node, int depth);
  Status WriteObject(NodeId node, int depth);

  const Graph& graph_;
  const ReferenceWriter& reference_;
  PickleWriter& pickle_;
  std::unordered_map<NodeId, std::uint32_t> times_;
  std::unordered_map<NodeId, std::uint32_t> slots_;  // of those that were written
};

Status ValueCopy::WriteTuple(NodeId node, int depth) {
  if (graph_.items(node).empty()) {
    pickle_.EmptyTuple();
    return OkStatus();
  }
  pickle_.BeginTuple();
  CKPT_RETURN_IF_ERROR(WriteItems(node, depth));
  pickle_.EndTuple();
  return OkStatus();
}

Status ValueCopy::WriteSet(std::string_view name, NodeId node, int depth) {
  pickle_.Global("builtins", name).BeginList();
  CKPT_RETURN_IF_ERROR(WriteItems(node, depth));
  pickle_.EndList().InTuple().Reduce();
  return OkStatus();
}

Status ValueCopy::WriteObject(NodeId node, int depth) {
  const bool is_call = graph_.kind(node) == NodeKind::kCall;
  const NodeId callable = graph_.callable(node);
  if (graph_.kind(callable) == NodeKind::kCall && !graph_.QualifiedName(node).empty()) {
    return RefuseInnerClass(graph_, node);
  }
  if (graph_.kind(callable) != NodeKind::kGlobal || graph_.kwargs(node) != kNoNode ||
      graph_.kind(graph_.args(node)) != NodeKind::kTuple) {
    return Error(ErrorKind::kUnsupported, "an object that is made in an unusual way");
  }
  if (is_call) {
    if (!IsHarmlessCall(graph_.module(callable), graph_.name(callable))) {
      return RefuseGlobal(graph_, callable);
    }
    CKPT_RETURN_IF_ERROR(CopyGlobal(graph_, callable, pickle_));
  } else {
    if (!HasPlainName(graph_, callable)) return RefuseGlobal(graph_, callable);
    if (IsInsideAClass(graph_, callable)) return RefuseInnerClass(graph_, callable);
    pickle_.Global(graph_.module(callable), graph_.name(callable));
  }
  CKPT_RETURN_IF_ERROR(Write(graph_.args(node), depth + 1));
  if (is_call) {
    pickle_.Reduce();
  } else {
    pickle_.NewObject();
  }
  if (const NodeId appended = graph_.appended(node); appended != kNoNode) {
    pickle_.BeginEntries();
    CKPT_RETURN_IF_ERROR(WriteItems(appended, depth));
    pickle_.EndList();
  }
  if (const NodeId entries = graph_.entries(node); entries != kNoNode) {
    pickle_.BeginEntries();
    CKPT_RETURN_IF_ERROR(WriteItems(entries, depth));
    pickle_.EndDict();
  }
  if (const NodeId state = graph_.state(node); state != kNoNode) {
    CKPT_RETURN_IF_ERROR(Write(state, depth + 1));
    pickle_.Build();
  }
  return OkStatus();
}

Status ValueCopy::WriteNew(NodeId node, int depth) {
  if (depth > kMaxCopyDepth) {
    return Error(ErrorKind::kResource, "the object is nested too deeply, or contains itself");
  }
  switch (graph_.kind(node)) {
    case NodeKind::kNone:
      pickle_.None();
      return OkStatus();
    case NodeKind::kBool:
      pickle_.Bool(graph_.boolean(node));
      return OkStatus();
    case NodeKind::kInt:
      pickle_.Int(graph_.integer(node));
      return OkStatus();
    case NodeKind::kBigInt:
      if (graph_.text(node).size() > std::numeric_limits<std::uint8_t>::max()) {
        return Error(ErrorKind::kUnsupported, "an integer that is not written");
      }
      pickle_.BigInt(graph_.text(node));
      return OkStatus();
    case NodeKind::kFloat:
      pickle_.Float(graph_.number(node));
      return OkStatus();
    case NodeKind::kText:
      pickle_.Text(graph_.text(node));
      return OkStatus();
    case NodeKind::kBytes:
      pickle_.BytesValue(AsBytes(graph_.text(node)));
      return OkStatus();
    case NodeKind::kByteArray:
      pickle_.Global("builtins", "bytearray").BytesValue(AsBytes(graph_.text(node)));
      pickle_.InTuple().Reduce();
      return OkStatus();
    case NodeKind::kTuple:
      return WriteTuple(node, depth);
    case NodeKind::kList:
      pickle_.BeginList();
      CKPT_RETURN_IF_ERROR(WriteItems(node, depth));
      pickle_.EndList();
      return OkStatus();
    case NodeKind::kDict:
      pickle_.BeginDict();
      CKPT_RETURN_IF_ERROR(WriteItems(node, depth));
      pickle_.EndDict();
      return OkStatus();
    case NodeKind::kSet:
      return WriteSet("set", node, depth);
    case NodeKind::kFrozenSet:
      return WriteSet("frozenset", node, depth);
    case NodeKind::kGlobal:
      return CopyGlobal(graph_, node, pickle_);
    case NodeKind::kCall:
    case NodeKind::kInstance:
      return WriteObject(node, depth);
    case NodeKind::kPersistent:
      return reference_(node, pickle_);
    case NodeKind::kRecord:
      break;
  }
  return Error(ErrorKind::kUnsupported, "a value that only its container understands");
}

}  // namespace

Status CopyGlobal(const Graph& graph, NodeId global, PickleWriter& pickle) {
  const std::string_view module = graph.module(global);
  const std::string_view name = graph.name(global);
  const bool is_constant = module == "torch" && (IsDTypeName(name) || IsQuantizationScheme(name));
  if (!HasPlainName(graph, global) || (!is_constant && !IsHarmlessCall(module, name))) {
    return RefuseGlobal(graph, global);
  }
  if (IsInsideAClass(graph, global)) return RefuseInnerClass(graph, global);
  pickle.Global(module, name);
  return OkStatus();
}

Status CopyValue(const Graph& graph, NodeId node, const ReferenceWriter& reference,
                 PickleWriter& pickle) {
  ValueCopy copy(graph, reference, pickle);
  copy.Count(node);
  return copy.Write(node, 0);
}

}  // namespace ckpt::pickle

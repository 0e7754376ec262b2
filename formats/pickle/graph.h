// What a pickle says, as data: nothing named in it is ever looked up or called.
#ifndef CKPT_FORMATS_PICKLE_GRAPH_H_
#define CKPT_FORMATS_PICKLE_GRAPH_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ckpt::pickle {

using NodeId = std::uint32_t;
inline constexpr NodeId kNoNode = 0xFFFFFFFF;

// Number of a distinct global of one graph.
using GlobalId = std::uint32_t;

enum class NodeKind : std::uint8_t {
  kNone,
  kBool,
  kInt,     // fits 64 bits
  kBigInt,  // does not; `text` is its little-endian two's complement
  kFloat,
  kText,  // UTF-8, lone surrogates as CPython's "surrogatepass"
  kBytes,
  kByteArray,
  kTuple,
  kList,
  kDict,  // items: key, value, key, value, …
  kSet,
  kFrozenSet,
  kGlobal,      // a class or function by name: `module`, `name`
  kCall,        // REDUCE: callable(*args)
  kInstance,    // NEWOBJ, NEWOBJ_EX: cls.__new__(cls, *args)
  kPersistent,  // BINPERSID: a reference that only the container understands
  kRecord,      // an object that a reducer has replaced by a number of its own (`record`)
};

// "int", "tuple", "call", …
std::string_view NodeKindName(NodeKind kind);

// Views into a graph.
struct GlobalName {
  std::string_view module;
  std::string_view name;
  friend bool operator==(const GlobalName&, const GlobalName&) = default;
};

// What a reducer made of an object: a number whose meaning only the reducer knows, of one of its
// types.
struct Record {
  std::uint32_t type = 0;
  std::uint64_t value = 0;
};

// An arena of nodes. Containers refer to children by number, so cycles and shared references are
// plain data: a walk needs its own limits. Thread-safety: const methods are thread-safe.
class Graph {
 public:
  [[nodiscard]] NodeKind kind(NodeId node) const { return nodes_[node].kind; }
  [[nodiscard]] std::size_t size() const { return nodes_.size(); }

  // REQUIRES of each: the kind it is about.
  [[nodiscard]] bool boolean(NodeId node) const { return nodes_[node].payload != 0; }
  [[nodiscard]] std::int64_t integer(NodeId node) const {
    return static_cast<std::int64_t>(nodes_[node].payload);
  }
  [[nodiscard]] double number(NodeId node) const;
  [[nodiscard]] Record record(NodeId node) const {
    return {nodes_[node].count, nodes_[node].payload};
  }
  // kText, kBytes, kByteArray, kBigInt. Valid until the graph changes.
  // Of all texts and bytes together.
  [[nodiscard]] std::uint64_t text_bytes() const { return text_.size(); }
  [[nodiscard]] std::string_view text(NodeId node) const {
    return std::string_view(text_).substr(nodes_[node].payload, nodes_[node].count);
  }
  // Children of kTuple, kList, kDict, kSet, kFrozenSet. Valid until the graph changes.
  [[nodiscard]] std::span<const NodeId> items(NodeId node) const {
    return std::span(items_).subspan(nodes_[node].payload, nodes_[node].count);
  }
  [[nodiscard]] std::string_view module(NodeId global) const;
  [[nodiscard]] std::string_view name(NodeId global) const;
  // Equal for two kGlobal nodes exactly if module and name are.
  [[nodiscard]] GlobalId global(NodeId node) const { return nodes_[node].count; }
  // kPersistent: the persistent id. kCall, kInstance: their parts, kNoNode where absent.
  [[nodiscard]] NodeId persistent_id(NodeId node) const {
    return static_cast<NodeId>(nodes_[node].payload);
  }
  [[nodiscard]] NodeId callable(NodeId node) const {
    return static_cast<NodeId>(nodes_[node].payload);
  }
  // A tuple.
  [[nodiscard]] NodeId args(NodeId node) const {
    return static_cast<NodeId>(nodes_[node].payload >> 32);
  }
  [[nodiscard]] NodeId kwargs(NodeId node) const { return extras(node).kwargs; }  // of NEWOBJ_EX
  [[nodiscard]] NodeId state(NodeId node) const { return extras(node).state; }    // of BUILD
  // A list: APPENDS to an object that is not a list.
  [[nodiscard]] NodeId appended(NodeId node) const { return extras(node).appended; }
  // A dict: SETITEMS on an object that is not a dict.
  [[nodiscard]] NodeId entries(NodeId node) const { return extras(node).entries; }

  // Whether the node is the global `module.name`.
  [[nodiscard]] bool IsGlobal(NodeId node, std::string_view module, std::string_view name) const;
  // "module.name" of a kGlobal, of the callable of a kCall or kInstance; else empty. A callable
  // that is getattr(module.name, "inner") is "module.name.inner".
  [[nodiscard]] std::string QualifiedName(NodeId node) const;
  // The value of a text key of a kDict, the last one as in Python; kNoNode if absent.
  [[nodiscard]] NodeId Find(NodeId dict, std::string_view key) const;
  // Every global that the pickle calls (REDUCE), in order of first appearance; also those whose
  // result was dropped.
  [[nodiscard]] std::vector<GlobalName> CalledGlobals() const;

 private:
  friend class GraphBuilder;

  struct Node {
    NodeKind kind = NodeKind::kNone;
    std::uint8_t capacity_log2 = 0;  // of a container's room in items_, if `count` > 0
    // Items, bytes of text, the global's number, the record's type, or 1 + the position in extras_.
    std::uint32_t count = 0;
    // A value, a start in items_ or text_, or callable (low half) and args (high half).
    std::uint64_t payload = 0;
  };
  struct Extras {
    NodeId kwargs = kNoNode;
    NodeId state = kNoNode;
    NodeId appended = kNoNode;
    NodeId entries = kNoNode;
  };
  struct Global {
    std::string module;
    std::string name;
    bool called = false;
  };

  [[nodiscard]] Extras extras(NodeId node) const {
    return nodes_[node].count == 0 ? Extras() : extras_[nodes_[node].count - 1];
  }

  std::vector<Node> nodes_;
  std::vector<NodeId> items_;
  std::string text_;
  std::vector<Extras> extras_;
  std::vector<Global> globals_;
};

}  // namespace ckpt::pickle

#endif  // CKPT_FORMATS_PICKLE_GRAPH_H_

// What a pickle says, as data: nothing named in it is ever looked up or called.
#ifndef CKPT_FORMATS_TORCH_SAVE_PICKLE_GRAPH_H_
#define CKPT_FORMATS_TORCH_SAVE_PICKLE_GRAPH_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ckpt::pickle {

using NodeId = std::uint32_t;
inline constexpr NodeId kNoNode = 0xFFFFFFFF;

enum class NodeKind : std::uint8_t {
  kNone,
  kBool,
  kInt,        // fits 64 bits
  kBigInt,     // does not; `text` is its little-endian two's complement
  kFloat,
  kText,       // UTF-8, lone surrogates as CPython's "surrogatepass"
  kBytes,
  kByteArray,
  kTuple,
  kList,
  kDict,       // items: key, value, key, value, …
  kSet,
  kFrozenSet,
  kGlobal,      // a class or function by name: `module`, `name`
  kCall,        // REDUCE: callable(*args)
  kInstance,    // NEWOBJ, NEWOBJ_EX: cls.__new__(cls, *args)
  kPersistent,  // BINPERSID: a reference that only the container understands
  kRecord,      // an object that a reducer has replaced by a number of its own (`record`)
};

// An arena of nodes. Containers refer to children by number, so cycles and shared references are plain data: a walk
// needs its own limits. Thread-safety: const methods are thread-safe.
class Graph {
 public:
  [[nodiscard]] NodeKind kind(NodeId node) const { return nodes_[node].kind; }
  [[nodiscard]] std::size_t size() const { return nodes_.size(); }

  // REQUIRES of each: the kind it is about.
  [[nodiscard]] bool boolean(NodeId node) const { return nodes_[node].payload != 0; }
  [[nodiscard]] std::int64_t integer(NodeId node) const;
  [[nodiscard]] double number(NodeId node) const;
  [[nodiscard]] std::uint64_t record(NodeId node) const { return nodes_[node].payload; }
  // kText, kBytes, kByteArray, kBigInt. Valid until the graph changes.
  [[nodiscard]] std::string_view text(NodeId node) const;
  // Children of kTuple, kList, kDict, kSet, kFrozenSet. Valid until the graph changes.
  [[nodiscard]] std::span<const NodeId> items(NodeId node) const;
  [[nodiscard]] std::string_view module(NodeId global) const;
  [[nodiscard]] std::string_view name(NodeId global) const;
  // kPersistent: the persistent id. kCall, kInstance: their parts, kNoNode where absent.
  [[nodiscard]] NodeId persistent_id(NodeId node) const;
  [[nodiscard]] NodeId callable(NodeId node) const;
  [[nodiscard]] NodeId args(NodeId node) const;     // a tuple
  [[nodiscard]] NodeId state(NodeId node) const;    // of BUILD
  [[nodiscard]] NodeId appended(NodeId node) const;  // a list: APPENDS to an object that is no list
  [[nodiscard]] NodeId entries(NodeId node) const;   // a dict: SETITEMS on an object that is no dict

  // Whether the node is the global `module.name`.
  [[nodiscard]] bool IsGlobal(NodeId node, std::string_view module, std::string_view name) const;
  // "module.name" of a kGlobal, of the callable of a kCall or kInstance; else empty.
  [[nodiscard]] std::string QualifiedName(NodeId node) const;
  // The value of a text key of a kDict, kNoNode if absent.
  [[nodiscard]] NodeId Find(NodeId dict, std::string_view key) const;

 private:
  friend class Machine;
  friend class GraphBuilder;

  struct Node {
    NodeKind kind = NodeKind::kNone;
    std::uint32_t count = 0;    // items, bytes of text, or parts
    std::uint64_t payload = 0;  // value, or start in items_ or text_
  };

  std::vector<Node> nodes_;
  std::vector<NodeId> items_;
  std::string text_;
};

}  // namespace ckpt::pickle

#endif  // CKPT_FORMATS_TORCH_SAVE_PICKLE_GRAPH_H_

// Builds a Graph node by node, and takes back what a reducer made superfluous.
#ifndef CKPT_FORMATS_PICKLE_INTERNAL_BUILDER_H_
#define CKPT_FORMATS_PICKLE_INTERNAL_BUILDER_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "formats/pickle/graph.h"

namespace ckpt::pickle {

// Nodes that never change exist once.
inline constexpr NodeId kNoneNode = 0;
inline constexpr NodeId kFalseNode = 1;
inline constexpr NodeId kTrueNode = 2;
inline constexpr NodeId kEmptyTupleNode = 3;
inline constexpr NodeId kFirstIntNode = 4;  // 0 … 255 follow each other
inline constexpr NodeId kFirstFreeNode = kFirstIntNode + 256;

class GraphBuilder {
 public:
  // `pickle_bytes` says how much is to come, so that growing pools need not move. Memory that stays
  // unused is never touched.
  explicit GraphBuilder(std::uint64_t pickle_bytes);

  [[nodiscard]] const Graph& graph() const { return graph_; }
  [[nodiscard]] NodeId next() const { return static_cast<NodeId>(graph_.nodes_.size()); }
  // Bytes that the names of globals take: references to shared text make them larger than the
  // pickle.
  [[nodiscard]] std::uint64_t global_bytes() const { return global_bytes_; }

  NodeId AddInt(std::int64_t value);
  NodeId AddFloat(double value);
  // kText, kBytes, kByteArray, kBigInt.
  NodeId AddText(NodeKind kind, std::string_view text);
  // kTuple, kList, kDict, kSet, kFrozenSet.
  NodeId AddContainer(NodeKind kind, std::span<const NodeId> items = {});
  NodeId AddGlobal(std::string_view module, std::string_view name);
  // kCall, kInstance.
  NodeId AddObject(NodeKind kind, NodeId callable, NodeId args);
  NodeId AddPersistent(NodeId id);
  NodeId AddRecord(Record record);

  // Adds children to a container.
  void Append(NodeId container, std::span<const NodeId> items);
  // The list and dict behind `appended` and `entries`, made when first asked for.
  NodeId AppendedOf(NodeId object);
  NodeId EntriesOf(NodeId object);
  void SetState(NodeId object, NodeId state);
  void SetKwargs(NodeId object, NodeId kwargs);
  void MarkCalled(NodeId global) { graph_.globals_[graph_.global(global)].called = true; }
  // Turns an object into a record.
  void Replace(NodeId object, Record record);

  // Forgets every node from `first` on. REQUIRES: no node before it refers to one of them.
  void Rollback(NodeId first);

  [[nodiscard]] Graph Take() && { return std::move(graph_); }

 private:
  NodeId Add(NodeKind kind, std::uint32_t count, std::uint64_t payload) {
    graph_.nodes_.push_back({.kind = kind, .count = count, .payload = payload});
    return next() - 1;
  }
  Graph::Extras& ExtrasOf(NodeId object);

  Graph graph_;
  std::map<std::pair<std::string, std::string>, GlobalId, std::less<>> global_ids_;
  std::uint64_t global_bytes_ = 0;
};

}  // namespace ckpt::pickle

#endif  // CKPT_FORMATS_PICKLE_INTERNAL_BUILDER_H_

#include "formats/pickle/internal/builder.h"

#include <algorithm>
#include <bit>

#include "core/base/check.h"

namespace ckpt::pickle {

namespace {

// A large `.metadata` has at least this many bytes for each node and each item.
constexpr std::uint64_t kBytesPerNode = 64;
// The size is that of a whole file, and the pickle may be a small part of it.
constexpr std::uint64_t kMaxReserved = 1ULL << 22;

}  // namespace

GraphBuilder::GraphBuilder(std::uint64_t pickle_bytes) {
  const std::uint64_t expected = std::min(pickle_bytes / kBytesPerNode, kMaxReserved);
  graph_.nodes_.reserve(kFirstFreeNode + 64 + expected);
  graph_.items_.reserve(expected);
  Add(NodeKind::kNone, 0, 0);
  Add(NodeKind::kBool, 0, 0);
  Add(NodeKind::kBool, 0, 1);
  Add(NodeKind::kTuple, 0, 0);
  for (std::uint64_t value = 0; value < 256; ++value) Add(NodeKind::kInt, 0, value);
}

NodeId GraphBuilder::AddInt(std::int64_t value) {
  if (value >= 0 && value < 256) return kFirstIntNode + static_cast<NodeId>(value);
  return Add(NodeKind::kInt, 0, static_cast<std::uint64_t>(value));
}

NodeId GraphBuilder::AddFloat(double value) {
  return Add(NodeKind::kFloat, 0, std::bit_cast<std::uint64_t>(value));
}

NodeId GraphBuilder::AddText(NodeKind kind, std::string_view text) {
  CKPT_CHECK(text.size() < kNoNode);
  const std::uint64_t start = graph_.text_.size();
  graph_.text_.append(text);
  return Add(kind, static_cast<std::uint32_t>(text.size()), start);
}

NodeId GraphBuilder::AddContainer(NodeKind kind, std::span<const NodeId> items) {
  const NodeId node = Add(kind, 0, 0);
  if (!items.empty()) Append(node, items);
  return node;
}

NodeId GraphBuilder::AddGlobal(std::string_view module, std::string_view name) {
  std::pair<std::string, std::string> key(module, name);
  const auto [it, added] =
      global_ids_.try_emplace(std::move(key), static_cast<GlobalId>(graph_.globals_.size()));
  if (added) {
    graph_.globals_.push_back({.module = it->first.first, .name = it->first.second});
    global_bytes_ += module.size() + name.size();
  }
  return Add(NodeKind::kGlobal, it->second, 0);
}

NodeId GraphBuilder::AddObject(NodeKind kind, NodeId callable, NodeId args) {
  return Add(kind, 0, callable | (static_cast<std::uint64_t>(args) << 32));
}

NodeId GraphBuilder::AddPersistent(NodeId id) { return Add(NodeKind::kPersistent, 0, id); }

NodeId GraphBuilder::AddRecord(Record record) {
  return Add(NodeKind::kRecord, record.type, record.value);
}

void GraphBuilder::Append(NodeId container, std::span<const NodeId> added) {
  Graph::Node& node = graph_.nodes_[container];
  std::vector<NodeId>& pool = graph_.items_;
  const std::uint64_t count = node.count + added.size();
  CKPT_CHECK(count < kNoNode);
  if (node.count == 0) {
    node.payload = pool.size();
    node.capacity_log2 = 0;
  }
  if (node.payload + node.count == pool.size()) {
    // The container's items are the last in the pool, so they can grow in place.
    pool.insert(pool.end(), added.begin(), added.end());
    node.count = static_cast<std::uint32_t>(count);
    return;
  }
  if (node.capacity_log2 == 0 || count > (1ULL << node.capacity_log2)) {
    // Moves the items to the end and reserves twice their number, so that the time of any sequence
    // of appends is linear.
    const std::uint64_t start = pool.size();
    node.capacity_log2 = static_cast<std::uint8_t>(std::bit_width(count));
    pool.resize(start + (1ULL << node.capacity_log2), kNoNode);
    std::copy_n(pool.begin() + static_cast<std::ptrdiff_t>(node.payload), node.count,
                pool.begin() + static_cast<std::ptrdiff_t>(start));
    node.payload = start;
  }
  std::copy(added.begin(), added.end(),
            pool.begin() + static_cast<std::ptrdiff_t>(node.payload + node.count));
  node.count = static_cast<std::uint32_t>(count);
}

Graph::Extras& GraphBuilder::ExtrasOf(NodeId object) {
  std::uint32_t& position = graph_.nodes_[object].count;
  if (position == 0) {
    graph_.extras_.emplace_back();
    position = static_cast<std::uint32_t>(graph_.extras_.size());
  }
  return graph_.extras_[position - 1];
}

NodeId GraphBuilder::AppendedOf(NodeId object) {
  Graph::Extras& extras = ExtrasOf(object);
  if (extras.appended == kNoNode) extras.appended = AddContainer(NodeKind::kList);
  return extras.appended;
}

NodeId GraphBuilder::EntriesOf(NodeId object) {
  Graph::Extras& extras = ExtrasOf(object);
  if (extras.entries == kNoNode) extras.entries = AddContainer(NodeKind::kDict);
  return extras.entries;
}

void GraphBuilder::SetState(NodeId object, NodeId state) { ExtrasOf(object).state = state; }

void GraphBuilder::SetKwargs(NodeId object, NodeId kwargs) { ExtrasOf(object).kwargs = kwargs; }

void GraphBuilder::Replace(NodeId object, Record record) {
  graph_.nodes_[object] = {
      .kind = NodeKind::kRecord, .count = record.type, .payload = record.value};
}

void GraphBuilder::Rollback(NodeId first) {
  // Pools grow in the order of the nodes, so everything from the smallest start of a dropped node
  // on belongs to dropped nodes.
  std::uint64_t items_end = graph_.items_.size();
  std::uint64_t text_end = graph_.text_.size();
  std::size_t extras_end = graph_.extras_.size();
  for (std::size_t i = first; i < graph_.nodes_.size(); ++i) {
    const Graph::Node& node = graph_.nodes_[i];
    switch (node.kind) {
      case NodeKind::kTuple:
      case NodeKind::kList:
      case NodeKind::kDict:
      case NodeKind::kSet:
      case NodeKind::kFrozenSet:
        if (node.count > 0) items_end = std::min(items_end, node.payload);
        break;
      case NodeKind::kText:
      case NodeKind::kBytes:
      case NodeKind::kByteArray:
      case NodeKind::kBigInt:
        text_end = std::min(text_end, node.payload);
        break;
      case NodeKind::kCall:
      case NodeKind::kInstance:
        if (node.count > 0) extras_end = std::min<std::size_t>(extras_end, node.count - 1);
        break;
      default:
        break;
    }
  }
  graph_.items_.resize(items_end);
  graph_.text_.resize(text_end);
  graph_.extras_.resize(extras_end);
  graph_.nodes_.resize(first);
}

}  // namespace ckpt::pickle

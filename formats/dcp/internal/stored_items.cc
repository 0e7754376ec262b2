#include "formats/dcp/internal/stored_items.h"

#include <algorithm>
#include <tuple>

namespace ckpt::dcp {
namespace {

using pickle::Graph;
using pickle::NodeId;

bool SameItem(const StoredItem& a, const StoredItem& b) {
  return std::tie(a.offset_bytes, a.size_bytes, a.path, a.encoding) ==
         std::tie(b.offset_bytes, b.size_bytes, b.path, b.encoding);
}

// Of a kIndex record.
std::uint32_t KeyOf(const Graph& graph, NodeId index) {
  return static_cast<std::uint32_t>(graph.record(index).value >> 32);
}

Status CheckPairs(const Graph& graph, std::span<const NodeId> pairs,
                  const MetadataReducer& reducer) {
  const auto is_record = [&](NodeId node, std::uint32_t type) {
    return graph.kind(node) == pickle::NodeKind::kRecord && graph.record(node).type == type;
  };
  for (std::size_t i = 0; i < pairs.size(); i += 2) {
    if (!is_record(pairs[i], MetadataReducer::kIndex)) {
      return Error(ErrorKind::kBadMetadata, "a key of storage_data is not a MetadataIndex");
    }
    if (!is_record(pairs[i + 1], MetadataReducer::kStored)) {
      return Error(ErrorKind::kBadMetadata, "a value of storage_data is not a _StorageInfo")
          .Tensor(reducer.keys().Get(KeyOf(graph, pairs[i])));
    }
  }
  return OkStatus();
}

}  // namespace

Result<StoredItems> StoredItems::Open(const Graph& graph, NodeId storage_data,
                                      const MetadataReducer& reducer) {
  if (graph.kind(storage_data) != pickle::NodeKind::kDict) {
    return Error(ErrorKind::kBadMetadata, "storage_data is not a dict")
        .Actual(pickle::NodeKindName(graph.kind(storage_data)));
  }
  const std::span<const NodeId> pairs = graph.items(storage_data);
  CKPT_RETURN_IF_ERROR(CheckPairs(graph, pairs, reducer));
  StoredItems items(reducer);
  items.Fill(graph, pairs);
  for (std::uint32_t key = 0; key + 1 < items.starts_.size(); ++key) {
    CKPT_RETURN_IF_ERROR(items.Sort(key));
  }
  return items;
}

void StoredItems::Fill(const Graph& graph, std::span<const NodeId> pairs) {
  starts_.assign(reducer_->keys().size() + 1, 0);
  for (std::size_t i = 0; i < pairs.size(); i += 2) ++starts_[KeyOf(graph, pairs[i])];
  // First the counts are added up to ends. Then the lists are filled from the back, which moves
  // each end to the start.
  std::uint32_t end = 0;
  for (std::uint32_t& start : starts_) start = end += start;
  entries_.resize(pairs.size() / 2);
  for (std::size_t i = pairs.size(); i != 0; i -= 2) {
    const std::uint32_t at = --starts_[KeyOf(graph, pairs[i - 2])];
    entries_[at] = {static_cast<DimsId>(graph.record(pairs[i - 2]).value & 0xFFFFFFFF),
                    static_cast<std::uint32_t>(graph.record(pairs[i - 1]).value)};
  }
}

Status StoredItems::Sort(std::uint32_t key) {
  const auto by_offset = [](const Entry& a, const Entry& b) { return a.offset < b.offset; };
  const std::span<Entry> entries = EntriesOf(key);
  if (!std::is_sorted(entries.begin(), entries.end(), by_offset)) {
    std::sort(entries.begin(), entries.end(), by_offset);
  }
  for (std::size_t i = 1; i < entries.size(); ++i) {
    if (entries[i].offset != entries[i - 1].offset) continue;
    const std::vector<StoredItem>& stored = reducer_->stored();
    if (!SameItem(stored[entries[i - 1].item], stored[entries[i].item])) {
      return Error(ErrorKind::kBadMetadata, "two storage entries for the same chunk")
          .Tensor(reducer_->keys().Get(key));
    }
  }
  return OkStatus();
}

const StoredItem* StoredItems::Find(std::uint32_t key, DimsId offset) {
  // Keys that were numbered after this was built have no entries.
  if (key + 1 >= starts_.size()) return nullptr;
  const std::size_t first = starts_[key];
  const std::size_t end = starts_[key + 1];
  if (next_ < first || next_ >= end || entries_[next_].offset != offset) {
    const auto from = entries_.begin() + static_cast<std::ptrdiff_t>(first);
    const auto to = entries_.begin() + static_cast<std::ptrdiff_t>(end);
    const auto found = std::lower_bound(
        from, to, offset, [](const Entry& entry, DimsId wanted) { return entry.offset < wanted; });
    if (found == to || found->offset != offset) return nullptr;
    next_ = static_cast<std::size_t>(found - entries_.begin());
  }
  return &reducer_->stored()[entries_[next_++].item];
}

}  // namespace ckpt::dcp

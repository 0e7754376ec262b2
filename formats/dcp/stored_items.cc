#include "formats/dcp/stored_items.h"

#include <algorithm>
#include <bit>
#include <tuple>

namespace ckpt::dcp {
namespace {

constexpr std::uint32_t kFree = 0xFFFFFFFF;

bool SameItem(const StoredItem& a, const StoredItem& b) {
  return std::tie(a.offset_bytes, a.size_bytes, a.path, a.encoding) ==
         std::tie(b.offset_bytes, b.size_bytes, b.path, b.encoding);
}

// splitmix64's finaliser: identities are small numbers side by side.
std::uint64_t Mix(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ULL;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBULL;
  return value ^ (value >> 31);
}

}  // namespace

Result<StoredItems> StoredItems::Open(const pickle::Graph& graph, pickle::NodeId storage_data,
                                      const MetadataReducer& reducer) {
  if (graph.kind(storage_data) != pickle::NodeKind::kDict) {
    return Error(ErrorKind::kBadMetadata, "storage_data is no dict")
        .Actual(pickle::NodeKindName(graph.kind(storage_data)));
  }
  StoredItems items(graph, graph.items(storage_data), reducer);
  items.slots_.assign(std::bit_ceil(items.pairs_.size() + 2), kFree);
  for (std::uint32_t i = 0; i < items.pairs_.size(); i += 2) {
    const auto is_record = [&](pickle::NodeId node, std::uint32_t type) {
      return graph.kind(node) == pickle::NodeKind::kRecord && graph.record(node).type == type;
    };
    if (!is_record(items.pairs_[i], MetadataReducer::kIndex)) {
      return Error(ErrorKind::kBadMetadata, "a key of storage_data is no MetadataIndex");
    }
    const std::uint64_t identity = graph.record(items.pairs_[i]).value;
    const std::string& key = reducer.keys().Get(static_cast<std::uint32_t>(identity >> 32));
    if (!is_record(items.pairs_[i + 1], MetadataReducer::kStored)) {
      return Error(ErrorKind::kBadMetadata, "a value of storage_data is no _StorageInfo")
          .Tensor(key);
    }
    std::uint32_t& slot = items.slots_[items.SlotOf(identity)];
    if (slot != kFree) {
      const auto stored = [&](std::uint32_t at) -> const StoredItem& {
        return reducer.stored()[graph.record(items.pairs_[at + 1]).value];
      };
      if (!SameItem(stored(slot), stored(i))) {
        return Error(ErrorKind::kBadMetadata, "two storage entries for the same chunk").Tensor(key);
      }
      continue;
    }
    slot = i;
  }
  return items;
}

std::size_t StoredItems::SlotOf(std::uint64_t identity) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = Mix(identity) & mask;
  while (slots_[slot] != kFree && graph_->record(pairs_[slots_[slot]]).value != identity) {
    slot = (slot + 1) & mask;
  }
  return slot;
}

const StoredItem* StoredItems::Find(std::uint32_t key, DimsId offset) const {
  const std::uint32_t at = slots_[SlotOf(MakeIdentity(key, offset))];
  if (at == kFree) return nullptr;
  return &reducer_->stored()[graph_->record(pairs_[at + 1]).value];
}

}  // namespace ckpt::dcp

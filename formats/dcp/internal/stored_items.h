// Finds the stored item of a chunk or object among the entries of `storage_data`.
#ifndef CKPT_FORMATS_DCP_INTERNAL_STORED_ITEMS_H_
#define CKPT_FORMATS_DCP_INTERNAL_STORED_ITEMS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/result.h"
#include "formats/dcp/internal/metadata_reducer.h"
#include "formats/pickle/graph.h"

namespace ckpt::dcp {

// The pairs of one `storage_data` dict, grouped by key and sorted by offset within: 8 bytes a pair.
// The reducer must outlive it.
class StoredItems {
 public:
  // Errors: kBadMetadata (an entry of another type, two different entries for one item).
  static Result<StoredItems> Open(const pickle::Graph& graph, pickle::NodeId storage_data,
                                  const MetadataReducer& reducer);

  // nullptr if there is no entry. Fastest in the order of the entries, which is that of the chunks
  // in what torch writes.
  [[nodiscard]] const StoredItem* Find(std::uint32_t key, DimsId offset);

 private:
  struct Entry {
    DimsId offset;
    std::uint32_t item;  // in the reducer's stored()
  };

  explicit StoredItems(const MetadataReducer& reducer) : reducer_(&reducer) {}
  [[nodiscard]] std::span<Entry> EntriesOf(std::uint32_t key) {
    return std::span(entries_).subspan(starts_[key], starts_[key + 1] - starts_[key]);
  }
  // Groups the checked pairs.
  void Fill(const pickle::Graph& graph, std::span<const pickle::NodeId> pairs);
  // Sorts the entries of one key.
  Status Sort(std::uint32_t key);

  const MetadataReducer* reducer_;
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> starts_;  // by key, and the end
  std::size_t next_ = 0;               // behind the entry found last
};

}  // namespace ckpt::dcp

#endif  // CKPT_FORMATS_DCP_INTERNAL_STORED_ITEMS_H_

// Finds the stored item of a chunk or object among the entries of `storage_data`.
#ifndef CKPT_FORMATS_DCP_STORED_ITEMS_H_
#define CKPT_FORMATS_DCP_STORED_ITEMS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/result.h"
#include "formats/dcp/metadata_reducer.h"
#include "formats/torch_save/pickle_graph.h"

namespace ckpt::dcp {

// A hash table over the pairs of one `storage_data` dict, 8 bytes a pair. The reducer and the graph must outlive it.
class StoredItems {
 public:
  // Errors: kBadMetadata (an entry of another type, two different entries for one item).
  static Result<StoredItems> Open(const pickle::Graph& graph, pickle::NodeId storage_data,
                                  const MetadataReducer& reducer);

  // nullptr if there is no entry.
  [[nodiscard]] const StoredItem* Find(std::uint32_t key, DimsId offset) const;

 private:
  StoredItems(const pickle::Graph& graph, std::span<const pickle::NodeId> pairs,
              const MetadataReducer& reducer)
      : graph_(&graph), pairs_(pairs), reducer_(&reducer) {}
  // The slot of this identity, or the free one where it belongs.
  [[nodiscard]] std::size_t SlotOf(std::uint64_t identity) const;

  const pickle::Graph* graph_;
  std::span<const pickle::NodeId> pairs_;
  const MetadataReducer* reducer_;
  std::vector<std::uint32_t> slots_;  // position in pairs_, or kFree
};

}  // namespace ckpt::dcp

#endif  // CKPT_FORMATS_DCP_STORED_ITEMS_H_

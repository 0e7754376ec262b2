// A checkpoint of Megatron-Core's dist_checkpointing (`torch_dist`) as a CheckpointSource.
#ifndef CKPT_FORMATS_TORCH_DIST_INTERNAL_SOURCE_H_
#define CKPT_FORMATS_TORCH_DIST_INTERNAL_SOURCE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/checkpoint/source.h"
#include "core/io/storage.h"
#include "formats/dcp/source.h"
#include "formats/megatron/dist_checkpoint.h"
#include "formats/torch_save/torch_container.h"

namespace ckpt::torch_dist {

using megatron::kCommonFile;
using megatron::kCommonKey;
using megatron::kMetadataFile;
// The common state where it is an object, since Core 0.19.
inline constexpr std::string_view kCommonItem = "common_state/shard_0_1";

// Ends the encoding of a part of a flattened block.
inline constexpr std::string_view kFlattened = "+flat";

// A DCP folder with conventions of its own: the common state is the object `common_state` whether
// it lies in common.pt (Core up to 0.18) or in an item; tensors that old optimizers stored as
// slices of flattened blocks have their true shape, and each slice is a few chunks of one item
// (encoding "…+flat"). A common.pt that metadata.json announces and that is gone is an object that
// cannot be read.
//
// Thread-safety: const methods may run concurrently.
class Source final : public CheckpointSource {
 public:
  // Errors: those of dcp::Source::Open and OpenTorchFile (common.pt), kBadMetadata (metadata.json),
  // kUnsupported (another backend or version). What concerns single keys goes to
  // index().problems().
  static Result<std::unique_ptr<Source>> Open(Storage& storage, const Path& directory);

  [[nodiscard]] const CheckpointIndex& index() const override { return index_; }
  Result<StoredArray> Locate(const GlobalTensor& tensor, const Chunk& chunk) const override;
  Result<RenderedObject> ReadObject(const ObjectEntry& object) const override;
  Result<std::optional<PickledObject>> ReadPickled(const ObjectEntry& object) const override;
  Result<std::uint64_t> FileSize(FileId file) const override;
  [[nodiscard]] Protection protection() const override { return dcp_->protection(); }

 private:
  // Where a chunk of a flattened tensor lies: elements from `first_elem` of the item of an inner
  // chunk.
  struct FlatSlice {
    std::size_t inner_chunk = 0;  // position among the inner tensor's chunks
    std::int64_t first_elem = 0;
  };
  struct FlatTensor {
    Dims block_strides;
    std::vector<FlatSlice> slices;  // of each chunk, in order
  };

  explicit Source(std::unique_ptr<dcp::Source> dcp) : dcp_(std::move(dcp)) {}

  Status BuildIndex();
  Status AddFlattened(const GlobalTensor& stored, const Dims& original, IndexBuilder& builder);

  const std::unique_ptr<dcp::Source> dcp_;
  std::optional<torch_save::TorchContainer> common_;  // of common.pt
  Status lost_common_;                                // why it is not there, though it was written
  CheckpointIndex index_;
  std::unordered_map<std::string, FlatTensor> flattened_;
};

// The same as an interface, with what Megatron-Bridge keeps beside it (bridge_files.h), and with
// what the optimizer has of weights in their order (grouped_states.h).
Result<std::unique_ptr<CheckpointSource>> OpenSource(Storage& storage, const Path& directory);

}  // namespace ckpt::torch_dist

#endif  // CKPT_FORMATS_TORCH_DIST_INTERNAL_SOURCE_H_

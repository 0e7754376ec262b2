// A torch.distributed.checkpoint folder as a CheckpointSource.
#ifndef CKPT_FORMATS_DCP_SOURCE_H_
#define CKPT_FORMATS_DCP_SOURCE_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "core/base/mutex.h"
#include "core/checkpoint/entry_map.h"
#include "core/checkpoint/source.h"
#include "core/io/file_cache.h"
#include "core/io/storage.h"
#include "formats/dcp/item.h"
#include "formats/dcp/item_demand.h"
#include "formats/dcp/metadata.h"
#include "formats/dcp/object_cache.h"
#include "formats/dcp/safetensors_blob.h"
#include "formats/torch_save/torch_container.h"

namespace ckpt::dcp {

// Every chunk is an item of its own in a data file: a torch.save archive, perhaps compressed, or a
// tensor of the file's safetensors blob. Opening reads the metadata and lists the folder; data
// files are opened when something in them is asked for.
//
// Thread-safety: const methods may run concurrently.
class Source final : public CheckpointSource {
 public:
  // Errors: those of FindMetadataFiles and ReadMetadata, kIo. What concerns single keys, and what
  // is left over in the folder, goes to index().problems().
  static Result<std::unique_ptr<Source>> Open(Storage& storage, const Path& directory);

  [[nodiscard]] const CheckpointIndex& index() const override { return index_; }
  Result<StoredArray> Locate(const GlobalTensor& tensor, const Chunk& chunk) const override;
  Result<RenderedObject> ReadObject(const ObjectEntry& object) const override;
  Result<std::optional<PickledObject>> ReadPickled(const ObjectEntry& object) const override;
  [[nodiscard]] EntryPaths Paths() const override;
  Result<std::uint64_t> FileSize(FileId file) const override;
  // kCrc32 as long as every item that was located has one of its own.
  [[nodiscard]] Protection protection() const override {
    return lacks_crc_ ? Protection::kNone : Protection::kCrc32;
  }

  // The container of an object's item, for formats that take it apart themselves. Errors: as
  // ReadObject.
  Result<torch_save::TorchContainer> OpenObject(const ObjectEntry& object) const;

  // What the metadata say besides.
  [[nodiscard]] const MetadataExtras& extras() const { return extras_; }

 private:
  Source(Storage& storage, const Path& directory);

  // A data file in which [offset, offset + size) was checked to lie.
  Result<std::shared_ptr<const ReadableFile>> OpenFor(FileId file, std::uint64_t offset,
                                                      std::uint64_t size_bytes) const;
  // The same as `Locate`; its errors do not name the tensor yet.
  Result<StoredArray> LocateItem(const GlobalTensor& tensor, const Chunk& chunk) const;

  // The stored bytes of a small object. Errors: those of OpenFor, kIo.
  Result<ItemBytes> ReadItem(const ObjectEntry& object) const;

  // The blob of safetensors that a chunk names. All tensors of a data file share it, so it is read
  // once.
  Result<std::shared_ptr<const SafetensorsBlob>> OpenBlob(const Chunk& chunk,
                                                          const DecodedItem& item) const
      CKPT_EXCLUDES(blobs_mutex_);

  const std::unique_ptr<FileCache> files_;
  CheckpointIndex index_;
  MetadataExtras extras_;
  // Of some item that was located: torch writes none on request, nor are there any in a blob.
  mutable std::atomic<bool> lacks_crc_ = false;
  // Made for the first range that is read.
  mutable std::once_flag demand_once_;
  mutable std::optional<ItemDemand> demand_;
  // Made for the first range that lies outside its file.
  mutable std::once_flag entries_once_;
  mutable std::optional<EntryMap> entries_;

  mutable ObjectCache objects_;

  using BlobPlace = std::pair<FileId, std::uint64_t>;
  mutable Mutex blobs_mutex_;
  mutable std::map<BlobPlace, Result<std::shared_ptr<const SafetensorsBlob>>> blobs_
      CKPT_GUARDED_BY(blobs_mutex_);
  mutable std::uint64_t blob_header_bytes_ CKPT_GUARDED_BY(blobs_mutex_) = 0;
};

// The same as an interface.
Result<std::unique_ptr<CheckpointSource>> OpenSource(Storage& storage, const Path& directory);

}  // namespace ckpt::dcp

#endif  // CKPT_FORMATS_DCP_SOURCE_H_

// A safetensors file or a repository of them as a CheckpointSource.
#ifndef CKPT_FORMATS_SAFETENSORS_SOURCE_H_
#define CKPT_FORMATS_SAFETENSORS_SOURCE_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/checkpoint/source.h"
#include "core/io/file_cache.h"
#include "core/io/storage.h"
#include "formats/safetensors/header.h"

namespace ckpt::safetensors {

// What it takes to write one file again as it is, apart from its tensors' values.
struct ShardLayout {
  std::string file;                   // relative to the directory
  std::optional<TextPairs> metadata;  // nothing if the header has none
  std::vector<std::string> tensors;   // in order of their bytes
};

// Chunks are raw bytes ("raw"). What headers say besides their tensors are objects,
// "__metadata__.NAME". Shards of torch's distributed writer are joined: their headers give each
// piece's offsets, and a tensor's shape is the smallest that holds its pieces.
//
// Thread-safety: const methods may run concurrently.
class SafetensorsSource final : public CheckpointSource {
 public:
  // `path` is one file, or a directory whose files FindRepositoryFiles chooses.
  //
  // Errors: those of FindRepositoryFiles and ReadHeader, for all files at once; kIo. What concerns
  // single tensors goes to index().problems(): kMissingFile and kMissing (the index names a file or
  // tensor that is not there), kUnsupported (a dtype that torch lacks), kOverlap (a tensor in two
  // files), kCoverage (the index announces more bytes than the pieces hold), kDtypeMismatch,
  // kOutOfRange and kBadMetadata (pieces that do not fit). That a rank has no file where others
  // have one is a warning (kMissingFile).
  static Result<std::unique_ptr<SafetensorsSource>> Open(Storage& storage, const Path& path);

  [[nodiscard]] const CheckpointIndex& index() const override { return index_; }
  Result<StoredArray> Locate(const GlobalTensor& tensor, const Chunk& chunk) const override;
  Result<RenderedObject> ReadObject(const ObjectEntry& object) const override;
  Result<std::uint64_t> FileSize(FileId file) const override;
  [[nodiscard]] Protection protection() const override { return Protection::kNone; }

  // In byte order of the file name.
  [[nodiscard]] const std::vector<ShardLayout>& shards() const { return shards_; }
  // The name of the index file, empty if there is none.
  [[nodiscard]] const std::string& index_name() const { return index_name_; }

 private:
  SafetensorsSource(Storage& storage, Path directory);

  [[nodiscard]] Result<std::shared_ptr<const ReadableFile>> OpenFile(FileId file) const;

  Path directory_;
  CheckpointIndex index_;
  std::vector<ShardLayout> shards_;
  std::string index_name_;
  std::map<std::string, std::string> notes_;  // texts by key
  mutable FileCache files_;
};

// The same as an interface.
Result<std::unique_ptr<CheckpointSource>> OpenSafetensors(Storage& storage,
                                                          const Path& file_or_directory);

}  // namespace ckpt::safetensors

#endif  // CKPT_FORMATS_SAFETENSORS_SOURCE_H_

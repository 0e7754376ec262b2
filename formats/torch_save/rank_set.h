// The files that the ranks of a job saved, each with its part, as one checkpoint.
#ifndef CKPT_FORMATS_TORCH_SAVE_RANK_SET_H_
#define CKPT_FORMATS_TORCH_SAVE_RANK_SET_H_

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/mutex.h"
#include "core/base/status.h"
#include "core/checkpoint/source.h"
#include "core/io/storage.h"
#include "core/tensor/box.h"
#include "formats/torch_save/tensor_rebuild.h"
#include "formats/torch_save/torch_save_source.h"

namespace ckpt::torch_save {

// Elements of a tensor that one file has.
struct PlacedPart {
  std::size_t file = 0;  // its number in the set
  Box box;               // of the whole tensor
  RebuiltTensor local;   // of that file's source; its shape is the box's
};

// A tensor of the checkpoint.
struct RankTensor {
  std::string key;
  DType dtype = DType::kFloat32;
  Dims shape;
  std::vector<PlacedPart> parts = {};  // those of the same box are replicas
  Status problem = {};                 // not OK: it cannot be delivered, and has no parts
};

struct RankSet;
// An object that no file holds under its key, as the set's file of this number has it.
using MakeObject = std::function<Result<RenderedObject>(const RankSet& set, std::size_t file)>;

// What a format says of the files, from which the checkpoint is made.
struct RankSet {
  std::vector<std::string> names;                       // relative to the checkpoint's directory
  std::vector<std::unique_ptr<TorchSaveSource>> files;  // parallel to the names
  std::vector<RankTensor> tensors;
  // `file` is a number in the set. The source of that file reads them, by the same key, unless they
  // are made. Those of the same key are copies: readers take the first.
  std::vector<ObjectEntry> objects;
  std::map<std::string, MakeObject> made = {};  // by key
  std::vector<Problem> problems;
};

// Opens the files of these names below `directory`. Errors: those of TorchSaveSource::Open, of all
// files at once.
Result<RankSet> OpenRankFiles(Storage& storage, const Path& directory,
                              std::vector<std::string> names);

// Adds a hint to those of the problem.
void AddHint(std::string_view hint, Problem& problem);

// A tensor has a chunk for each part. Elements that several ranks hold are read from the first;
// that the others are equal is known by the checksums of their files, or found by reading them,
// unless the files count as checked: then it is not asked, as no checksum is.
//
// Thread-safety: const methods may run concurrently.
class RankSetSource final : public CheckpointSource {
 public:
  // Errors: kBadMetadata (a key twice).
  static Result<std::unique_ptr<CheckpointSource>> Make(RankSet set);

  [[nodiscard]] const CheckpointIndex& index() const override { return index_; }
  // Errors also: kChecksum (ranks that should hold the same elements hold different ones).
  Result<StoredArray> Locate(const GlobalTensor& tensor, const Chunk& chunk) const override;
  Result<RenderedObject> ReadObject(const ObjectEntry& object) const override;
  Result<std::optional<PickledObject>> ReadPickled(const ObjectEntry& object) const override;
  Status VerifyRest() const override;
  Result<std::uint64_t> FileSize(FileId file) const override;
  [[nodiscard]] Protection protection() const override;

 private:
  explicit RankSetSource(RankSet set) : set_(std::move(set)) {}

  Status BuildIndex();
  void AddChunks(const RankTensor& tensor, EncodingId encoding, IndexBuilder& builder);
  // Reads them the first time that a box is located.
  Status CheckReplicas(const std::string& key, const PlacedPart& first) const CKPT_EXCLUDES(mutex_);

  const RankSet set_;
  CheckpointIndex index_;
  std::vector<const PlacedPart*> located_;  // parallel to the index's chunks
  // Parts that must hold what an earlier one holds, and whose checksums do not show it; by that.
  std::map<const PlacedPart*, std::vector<const PlacedPart*>> unproven_;
  mutable Mutex mutex_;
  mutable std::set<const PlacedPart*> proven_ CKPT_GUARDED_BY(mutex_);  // of `unproven_`
};

}  // namespace ckpt::torch_save

#endif  // CKPT_FORMATS_TORCH_SAVE_RANK_SET_H_

// A Hugging Face repository whose weights torch.save wrote, as Transformers did before safetensors:
// `pytorch_model.bin`, or several files and `pytorch_model.bin.index.json`; or an adapter's,
// `adapter_model.bin`, as PEFT did.
#ifndef CKPT_FORMATS_TORCH_SAVE_TORCH_REPOSITORY_H_
#define CKPT_FORMATS_TORCH_SAVE_TORCH_REPOSITORY_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/checkpoint/source.h"
#include "core/io/storage.h"
#include "core/manifest/manifest.h"
#include "formats/safetensors/sharded_index.h"
#include "formats/torch_save/torch_save_source.h"

namespace ckpt::torch_save {

inline constexpr std::string_view kTorchWeightsName = "pytorch_model.bin";
inline constexpr std::string_view kTorchIndexName = "pytorch_model.bin.index.json";
inline constexpr std::string_view kTorchAdapterName = "adapter_model.bin";

// The tensors of all its files, as each file names them (TorchSaveSource); of those that the index
// gives to a file, only that one's. As in Transformers, `pytorch_model.bin` goes before an index;
// an adapter goes behind both.
//
// Thread-safety: const methods may run concurrently.
class TorchRepositorySource final : public CheckpointSource {
 public:
  // Errors: kNotFound (none of the three names), those of ParseShardedIndex, and of
  // TorchSaveSource::Open for all files at once. What concerns single files and tensors goes to
  // index().problems(): kMissingFile and kMissing (the index names a file or tensor that is not
  // there), and those of each file.
  static Result<std::unique_ptr<TorchRepositorySource>> Open(Storage& storage,
                                                             const Path& directory);

  [[nodiscard]] const CheckpointIndex& index() const override { return index_; }
  Result<StoredArray> Locate(const GlobalTensor& tensor, const Chunk& chunk) const override;
  Result<RenderedObject> ReadObject(const ObjectEntry& object) const override;
  Result<std::optional<PickledObject>> ReadPickled(const ObjectEntry& object) const override;
  [[nodiscard]] std::uint64_t HeldBytes(const ObjectEntry& object) const override {
    return files_[object.file]->HeldBytes(object);
  }
  // Of the only file; entries of several files stand on top, as in a state dict.
  [[nodiscard]] EntryPaths Paths() const override;
  [[nodiscard]] std::vector<ObjectEntry> Attributes() const override { return attributes_; }
  Status VerifyRest() const override;
  Result<std::uint64_t> FileSize(FileId file) const override;
  [[nodiscard]] Protection protection() const override;

 private:
  TorchRepositorySource() = default;

  // `weights`: what the index says, null without one.
  Status BuildIndex(const safetensors::ShardedIndex* weights,
                    const std::vector<std::string>& missing);
  void TakeAttributes(IndexBuilder& builder);

  std::vector<std::string> names_;                       // of the files, by FileId
  std::vector<std::unique_ptr<TorchSaveSource>> files_;  // by FileId
  std::vector<ObjectEntry> attributes_;                  // of the first file that has one
  CheckpointIndex index_;
};

// The same as an interface.
Result<std::unique_ptr<CheckpointSource>> OpenTorchRepository(Storage& storage,
                                                              const Path& directory);

// The file of an adapter, named as PEFT looks for it in safetensors; nothing of another source.
std::vector<ManifestShard> DescribeAdapter(const CheckpointSource& source);

// Whether a directory that has no safetensors files is such a repository.
Result<bool> IsTorchRepository(Storage& storage, const Path& directory);

}  // namespace ckpt::torch_save

#endif  // CKPT_FORMATS_TORCH_SAVE_TORCH_REPOSITORY_H_

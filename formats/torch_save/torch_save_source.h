// A torch.save file as a CheckpointSource.
#ifndef CKPT_FORMATS_TORCH_SAVE_TORCH_SAVE_SOURCE_H_
#define CKPT_FORMATS_TORCH_SAVE_TORCH_SAVE_SOURCE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/base/once_per_key.h"
#include "core/checkpoint/source.h"
#include "core/io/storage.h"
#include "core/manifest/manifest.h"
#include "core/tensor/box.h"
#include "core/tensor/shape.h"
#include "formats/torch_save/tensor_rebuild.h"
#include "formats/torch_save/torch_container.h"

namespace ckpt::torch_save {

struct NamedNode;  // internal/entry_walk.h

// What one rank's file has of a tensor: all of it, or a part of a distributed one (torch's DTensor
// or ShardedTensor). The lists are by dim of a DTensor's mesh; empty for another tensor.
struct RankPart {
  std::string key;
  Dims shape;                                         // of the whole tensor
  std::vector<std::optional<std::int64_t>> cut_dims;  // of the tensor; nothing: every rank has all
  std::vector<std::int64_t> coordinate;               // of the rank
  std::optional<Box> box = {};                        // of a ShardedTensor: where the part lies
  RebuiltTensor local;                                // the rank's elements
};

// Tensors are named by their path in the pickled object (FindEntries) and have one chunk each;
// several may share bytes. Tensors that are not plain arrays are objects under their path, and so
// are values, and whatever else holds numbers that no tensor of the index has.
//
// Thread-safety: const methods may run concurrently.
class TorchSaveSource final : public CheckpointSource {
 public:
  // Errors: those of OpenTorchFile and FindEntries, kNotFound, kIo. What is wrong with single
  // tensors goes to index().problems().
  static Result<std::unique_ptr<TorchSaveSource>> Open(Storage& storage, const Path& path);

  [[nodiscard]] const CheckpointIndex& index() const override { return index_; }
  Result<StoredArray> Locate(const GlobalTensor& tensor, const Chunk& chunk) const override;
  // An entry of index().objects(); or the whole pickled object, its tensors by SHA-256, for an
  // entry with the empty key; or, for one of members(), what is under it.
  Result<RenderedObject> ReadObject(const ObjectEntry& object) const override;
  [[nodiscard]] std::uint64_t HeldBytes(const ObjectEntry& object) const override;
  [[nodiscard]] bool is_one_object() const override { return true; }
  [[nodiscard]] EntryPaths Paths() const override;
  [[nodiscard]] std::vector<ObjectEntry> Attributes() const override { return attributes_; }
  Result<std::optional<PickledObject>> ReadPickled(const ObjectEntry& object) const override;
  // The keys of the pickled object that are text, if it is a dict.
  [[nodiscard]] std::vector<std::string> members() const;
  // One of members() as JSON in which tensors are only named by class: none is read. Errors:
  // kNotFound, kResource (too large to print).
  [[nodiscard]] Result<std::string> OutlineMember(std::string_view member) const;
  // What the file says of where it came from; null if it says nothing. Errors: those of
  // ParseManifest.
  [[nodiscard]] Result<std::shared_ptr<const Manifest>> ReadOrigin() const;
  Status VerifyRest() const override;
  Result<std::uint64_t> FileSize(FileId file) const override;
  [[nodiscard]] Protection protection() const override { return protection_; }

  // Every tensor whose key begins with `prefix`, for readers of the files of all ranks. (In the
  // index, parts are objects.) Of a ShardedTensor a rank may have no part, or several. Valid as
  // long as this object. Errors, of all tensors at once: those of RebuildTensor, kUnsupported (a
  // placement that is not read, no plain array), kBadItem.
  [[nodiscard]] Result<std::vector<RankPart>> RankParts(std::string_view prefix = {}) const;
  // As Locate, of RankPart::local or a part of it.
  [[nodiscard]] Result<StoredArray> LocatePart(const RebuiltTensor& local) const;
  // SHA-256 of its elements in C order.
  [[nodiscard]] Result<std::string> DigestPart(const RebuiltTensor& local) const;

 private:
  using Storages = std::unordered_set<const StorageExtent*>;

  explicit TorchSaveSource(TorchContainer container);

  struct Listing;

  Status BuildIndex(const std::string& file_name);
  // Adds an entry of the pickle to the index. Errors: kResource.
  Status AddEntry(const NamedNode& named, Listing& listing);
  // Those of the tensors of the index.
  [[nodiscard]] Storages ListedStorages() const;
  // Those that the pickle uses, but no tensor of the index.
  [[nodiscard]] Storages HiddenStorages() const;
  // The storage behind a tensor, or behind a reference to one; null if there is none.
  [[nodiscard]] const StorageExtent* StorageBehind(pickle::NodeId node) const;
  // Makes objects of what holds hidden storages, and warns of each. `make`: an entry of this key.
  Status NameHidden(const std::function<ObjectEntry(const std::string&)>& make,
                    IndexBuilder& builder);
  // Verifies a storage the first time: views share it.
  Status VerifyOnce(const StorageExtent& storage) const;

  const TorchContainer container_;
  const std::unordered_set<pickle::NodeId> whole_;  // values that are one entry each
  CheckpointIndex index_;
  std::unordered_map<std::string, RebuiltTensor> tensors_;
  std::unordered_map<std::string, pickle::NodeId> objects_;
  std::vector<ObjectEntry> attributes_;                        // in objects_, but not in the index
  std::unordered_set<pickle::NodeId> values_;                  // objects that hold no tensors
  std::unordered_map<std::string, std::uint64_t> held_bytes_;  // by the keys of objects
  Storages held_;  // by objects: compared with their checksums when those are read
  Protection protection_ = Protection::kNone;
  mutable OncePerKey<const StorageExtent*> verified_;
};

// The same as an interface.
Result<std::unique_ptr<CheckpointSource>> OpenTorchSave(Storage& storage, const Path& file);

}  // namespace ckpt::torch_save

#endif  // CKPT_FORMATS_TORCH_SAVE_TORCH_SAVE_SOURCE_H_

// CheckpointIndex: what a checkpoint holds, whatever its container.
#ifndef CKPT_CORE_CHECKPOINT_INDEX_H_
#define CKPT_CORE_CHECKPOINT_INDEX_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/base/result.h"
#include "core/tensor/box.h"
#include "core/tensor/dtype.h"
#include "core/tensor/shape.h"

namespace ckpt {

// Number of a file in `CheckpointIndex::files()`.
using FileId = std::uint32_t;
// Number of a text in `CheckpointIndex::encodings()`, which says how the bytes of a chunk become
// elements.
using EncodingId = std::uint32_t;
// Number of an interned Dims.
using DimsId = std::uint32_t;

// A stored box of a global tensor, and its bytes in a file. 32 bytes: the index of a large run
// holds millions of chunks.
struct Chunk {
  DimsId offsets = 0;
  DimsId sizes = 0;
  FileId file = 0;
  EncodingId encoding = 0;
  std::uint64_t offset_bytes = 0;  // of the stored item, including framing
  std::uint64_t size_bytes = 0;
};

// The whole logical tensor, independent of any mesh.
struct GlobalTensor {
  std::string key;
  DType dtype = DType::kFloat32;
  Dims shape;
  std::uint64_t first_chunk = 0;
  std::uint64_t num_chunks = 0;
};

// A small entry that is not a tensor: a scalar, a byte blob, a configuration.
struct ObjectEntry {
  std::string key;
  FileId file = 0;
  EncodingId encoding = 0;
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;
};

// Distinct Dims stored once. Equal dims have equal ids.
class DimsPool {
 public:
  DimsId Intern(DimsView dims);
  [[nodiscard]] DimsView Get(DimsId id) const {
    return std::span(values_).subspan(starts_[id], starts_[id + 1] - starts_[id]);
  }
  [[nodiscard]] std::size_t size() const { return starts_.size() - 1; }

 private:
  void Grow();

  std::vector<std::int64_t> values_;
  std::vector<std::uint64_t> starts_ = {0};
  std::vector<DimsId> slots_;  // open addressing; kEmptySlot where free
};

// Metadata of a whole checkpoint. Immutable once built by IndexBuilder; const methods are
// thread-safe.
class CheckpointIndex {
 public:
  // Sorted by the bytes of the key.
  [[nodiscard]] std::span<const GlobalTensor> tensors() const { return tensors_; }
  [[nodiscard]] std::span<const ObjectEntry> objects() const { return objects_; }
  [[nodiscard]] std::span<const Chunk> chunks() const { return chunks_; }
  [[nodiscard]] std::span<const Chunk> chunks(const GlobalTensor& tensor) const {
    return std::span(chunks_).subspan(tensor.first_chunk, tensor.num_chunks);
  }
  // How often that box of a tensor is stored that is stored most often; 0 without chunks.
  [[nodiscard]] std::size_t NumCopies(const GlobalTensor& tensor) const;
  // What is stored of an object beside it, as ranks do that each have it, in the order in which it
  // was added. Readers take the object itself.
  [[nodiscard]] std::span<const ObjectEntry> copies(const ObjectEntry& object) const;
  // Of all objects, sorted by the bytes of the key.
  [[nodiscard]] std::span<const ObjectEntry> object_copies() const { return object_copies_; }
  // Whether ranks saved without talking to each other. Then a copy of a tensor or an object is what
  // another rank had under the same key, and perhaps something else than what readers take.
  [[nodiscard]] bool ranks_saved_alone() const { return ranks_saved_alone_; }
  // Names relative to the checkpoint's directory.
  [[nodiscard]] std::span<const std::string> files() const { return files_; }
  [[nodiscard]] std::span<const std::string> encodings() const { return encodings_; }
  [[nodiscard]] const std::string& encoding(const Chunk& chunk) const {
    return encodings_[chunk.encoding];
  }

  [[nodiscard]] DimsView offsets(const Chunk& chunk) const { return dims_.Get(chunk.offsets); }
  [[nodiscard]] DimsView sizes(const Chunk& chunk) const { return dims_.Get(chunk.sizes); }
  [[nodiscard]] Box box(const Chunk& chunk) const;

  // nullptr if there is none.
  [[nodiscard]] const GlobalTensor* FindTensor(std::string_view key) const;
  [[nodiscard]] const ObjectEntry* FindObject(std::string_view key) const;

  // What was found while reading the metadata: warnings, and errors about single tensors (their
  // `tensor` is set). A tensor with an error must not be delivered.
  [[nodiscard]] const std::vector<Problem>& problems() const { return problems_; }
  // The errors about one key. Readers call this before they deliver a chunk of it.
  [[nodiscard]] Status CheckDeliverable(std::string_view key) const;

 private:
  friend class IndexBuilder;
  std::vector<GlobalTensor> tensors_;
  std::vector<ObjectEntry> objects_;
  std::vector<ObjectEntry> object_copies_;
  bool ranks_saved_alone_ = false;
  std::vector<Chunk> chunks_;
  std::vector<std::string> files_;
  std::vector<std::string> encodings_;
  DimsPool dims_;
  std::vector<Problem> problems_;
  // Positions in `problems_`, by key.
  std::map<std::string, std::vector<std::size_t>, std::less<>> errors_;
};

// Collects tensors, chunks and objects in any order.
class IndexBuilder {
 public:
  FileId AddFile(std::string_view name);  // the same name gives the same id
  EncodingId AddEncoding(std::string_view name);
  DimsId AddDims(DimsView dims) { return index_.dims_.Intern(dims); }
  // Takes over dims that were interned elsewhere, for readers that intern while they parse. Earlier
  // ids become invalid.
  void AdoptDims(DimsPool dims) { index_.dims_ = std::move(dims); }

  // Starts a tensor; its chunks follow by AddChunk.
  void AddTensor(std::string_view key, DType dtype, Dims shape);
  void AddChunk(const Chunk& chunk);  // to the tensor started last
  void AddChunk(const Box& box, FileId file, EncodingId encoding, std::uint64_t offset_bytes,
                std::uint64_t size_bytes);
  void AddObject(ObjectEntry object) { index_.objects_.push_back(std::move(object)); }
  // Of an object that is added, too.
  void AddObjectCopy(ObjectEntry copy) { index_.object_copies_.push_back(std::move(copy)); }
  void SetRanksSavedAlone() { index_.ranks_saved_alone_ = true; }
  void AddProblem(Problem problem) { index_.problems_.push_back(std::move(problem)); }
  void AddProblems(const Status& status);  // all of them, as errors
  // Files added so far.
  [[nodiscard]] std::span<const std::string> files() const { return index_.files(); }
  void ReserveChunks(std::size_t count) { index_.chunks_.reserve(count); }

  // Sorts everything. Errors: kBadMetadata (a key twice).
  Result<CheckpointIndex> Build();

 private:
  CheckpointIndex index_;
  std::unordered_map<std::string, FileId> file_ids_;
};

}  // namespace ckpt

#endif  // CKPT_CORE_CHECKPOINT_INDEX_H_

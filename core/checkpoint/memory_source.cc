#include "core/checkpoint/memory_source.h"

#include <utility>

#include <fmt/format.h>

#include "core/base/checked_math.h"

namespace ckpt {
namespace {

class MemorySource final : public CheckpointSource {
 public:
  MemorySource(CheckpointIndex index, std::vector<std::shared_ptr<const ReadableFile>> files)
      : index_(std::move(index)), files_(std::move(files)) {}

  [[nodiscard]] const CheckpointIndex& index() const override { return index_; }

  Result<StoredArray> Locate(const GlobalTensor& tensor, const Chunk& chunk) const override {
    if (files_[chunk.file] == nullptr) return NotHere(chunk.file).Tensor(tensor.key);
    StoredArray array;
    array.file = files_[chunk.file];
    array.offset_bytes = chunk.offset_bytes;
    array.dtype = tensor.dtype;
    const DimsView sizes = index_.sizes(chunk);
    array.strides = ContiguousStrides(Dims(sizes.begin(), sizes.end()));
    return array;
  }

  Result<RenderedObject> ReadObject(const ObjectEntry& object) const override {
    return Error(ErrorKind::kNotFound, "a source in memory has no objects").Tensor(object.key);
  }

  Result<std::uint64_t> FileSize(FileId file) const override {
    if (files_[file] == nullptr) return NotHere(file);
    return files_[file]->size_bytes();
  }

  [[nodiscard]] Protection protection() const override { return Protection::kNone; }

 private:
  [[nodiscard]] Status NotHere(FileId file) const {
    return Error(ErrorKind::kMissingFile, "another process has this memory")
        .File(index_.files()[file]);
  }

  CheckpointIndex index_;
  std::vector<std::shared_ptr<const ReadableFile>> files_;  // by FileId; null: in another process
};

}  // namespace

Result<std::unique_ptr<CheckpointSource>> MakeMemorySource(std::vector<MemoryTensor> tensors) {
  IndexBuilder builder;
  const EncodingId raw = builder.AddEncoding("raw");
  std::vector<std::shared_ptr<const ReadableFile>> files;
  for (MemoryTensor& tensor : tensors) {
    CKPT_ASSIGN_OR_RETURN(const std::uint64_t bytes, CountBytes(tensor.shape, tensor.dtype));
    if (bytes != tensor.values.size()) {
      return Error(ErrorKind::kSizeMismatch, "a tensor's values do not fill its shape")
          .Tensor(tensor.key)
          .Expected(fmt::format("{} bytes", bytes))
          .Actual(fmt::format("{} bytes", tensor.values.size()));
    }
    builder.AddTensor(tensor.key, tensor.dtype, tensor.shape);
    const FileId file = builder.AddFile(fmt::format("memory-{}", files.size()));
    builder.AddChunk(WholeBox(tensor.shape), file, raw, 0, bytes);
    files.push_back(MakeMemoryFile(tensor.key, std::move(tensor.values)));
  }
  CKPT_ASSIGN_OR_RETURN(CheckpointIndex index, builder.Build());
  return MakePartialSource(std::move(index), std::move(files));
}

Result<std::unique_ptr<CheckpointSource>> MakePartialSource(
    CheckpointIndex index, std::vector<std::shared_ptr<const ReadableFile>> files) {
  for (const GlobalTensor& tensor : index.tensors()) {
    for (const Chunk& chunk : index.chunks(tensor)) {
      const ReadableFile* const file = files[chunk.file].get();
      std::uint64_t end = 0;
      const bool fits =
          file == nullptr ||
          (CheckedAdd(chunk.offset_bytes, chunk.size_bytes, &end) && end <= file->size_bytes());
      if (fits) continue;
      return Error(ErrorKind::kOutOfRange, "a chunk reaches past its memory").Tensor(tensor.key);
    }
  }
  return std::unique_ptr<CheckpointSource>(
      std::make_unique<MemorySource>(std::move(index), std::move(files)));
}

}  // namespace ckpt

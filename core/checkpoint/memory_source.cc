#include "core/checkpoint/memory_source.h"

#include <utility>

#include <fmt/format.h>

namespace ckpt {
namespace {

class MemorySource final : public CheckpointSource {
 public:
  MemorySource(CheckpointIndex index, std::vector<std::shared_ptr<const ReadableFile>> files)
      : index_(std::move(index)), files_(std::move(files)) {}

  [[nodiscard]] const CheckpointIndex& index() const override { return index_; }

  Result<StoredArray> Locate(const GlobalTensor& tensor, const Chunk& chunk) const override {
    StoredArray array;
    array.file = files_[chunk.file];
    array.dtype = tensor.dtype;
    array.strides = ContiguousStrides(tensor.shape);
    return array;
  }

  Result<RenderedObject> ReadObject(const ObjectEntry& object) const override {
    return Error(ErrorKind::kNotFound, "tensors in memory come without objects").Tensor(object.key);
  }

  Result<std::uint64_t> FileSize(FileId file) const override { return files_[file]->size_bytes(); }

  [[nodiscard]] Protection protection() const override { return Protection::kNone; }

 private:
  CheckpointIndex index_;
  std::vector<std::shared_ptr<const ReadableFile>> files_;  // one a tensor
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
  return std::unique_ptr<CheckpointSource>(
      std::make_unique<MemorySource>(std::move(index), std::move(files)));
}

}  // namespace ckpt

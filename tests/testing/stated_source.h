// A checkpoint of which a test states tensors and objects.
#ifndef CKPT_TESTS_TESTING_STATED_SOURCE_H_
#define CKPT_TESTS_TESTING_STATED_SOURCE_H_

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/checkpoint/memory_source.h"
#include "core/checkpoint/source.h"
#include "core/tensor/box.h"

namespace ckpt::testing {

using StatedObjects = std::map<std::string, std::string>;  // key → JSON

// Tensors in memory, and objects as JSON: what a checkpoint says, without a container.
class StatedSource final : public CheckpointSource {
 public:
  // REQUIRES: no key is there twice.
  StatedSource(std::vector<MemoryTensor> tensors, StatedObjects objects)
      : objects_(std::move(objects)), tensors_(MakeMemorySource(std::move(tensors)).value()) {
    IndexBuilder builder;
    const FileId file = builder.AddFile("memory");
    const EncodingId raw = builder.AddEncoding("raw");
    for (const GlobalTensor& tensor : tensors_->index().tensors()) {
      builder.AddTensor(tensor.key, tensor.dtype, tensor.shape);
      builder.AddChunk(WholeBox(tensor.shape), file, raw, 0, NumBytes(tensor.shape, tensor.dtype));
    }
    for (const auto& [key, json] : objects_) {
      builder.AddObject({.key = key, .file = file, .encoding = raw, .size_bytes = 1});
    }
    index_ = builder.Build().value();
  }

  [[nodiscard]] const CheckpointIndex& index() const override { return index_; }
  [[nodiscard]] Result<StoredArray> Locate(const GlobalTensor& tensor,
                                           const Chunk& /*chunk*/) const override {
    const GlobalTensor* const held = tensors_->index().FindTensor(tensor.key);
    return tensors_->Locate(*held, tensors_->index().chunks(*held).front());
  }
  [[nodiscard]] Result<RenderedObject> ReadObject(const ObjectEntry& object) const override {
    return RenderedObject{.type = "any", .json = objects_.at(object.key), .warnings = {}};
  }
  [[nodiscard]] Result<std::uint64_t> FileSize(FileId /*file*/) const override { return 8; }
  [[nodiscard]] Protection protection() const override { return {}; }

 private:
  StatedObjects objects_;
  std::unique_ptr<CheckpointSource> tensors_;
  CheckpointIndex index_;
};

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_TESTING_STATED_SOURCE_H_

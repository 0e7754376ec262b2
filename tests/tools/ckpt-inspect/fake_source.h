// A checkpoint in memory: dense chunks of one file each, and objects that are JSON already.
#ifndef CKPT_TESTS_TOOLS_CKPT_INSPECT_FAKE_SOURCE_H_
#define CKPT_TESTS_TOOLS_CKPT_INSPECT_FAKE_SOURCE_H_

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "core/base/endian.h"
#include "core/checkpoint/source.h"
#include "formats/registry/registry.h"

namespace ckpt::testing {

class FakeSource final : public CheckpointSource {
 public:
  // A tensor of one chunk whose bytes are `content`.
  void AddTensor(const std::string& key, DType dtype, const Dims& shape, Bytes content) {
    const FileId file = builder_.AddFile(key + ".bin");
    builder_.AddTensor(key, dtype, shape);
    builder_.AddChunk(WholeBox(shape), file, builder_.AddEncoding("raw"), 0, content.size());
    files_[file] = MakeMemoryFile(key + ".bin", std::move(content));
  }
  void AddObject(const std::string& key, RenderedObject object) {
    builder_.AddObject({.key = key,
                        .file = builder_.AddFile("objects"),
                        .encoding = builder_.AddEncoding("json"),
                        .size_bytes = object.json.size()});
    files_[builder_.AddFile("objects")] = MakeMemoryFile("objects", Bytes(1024));
    objects_[key] = std::move(object);
  }
  void AddProblem(Problem problem) { builder_.AddProblem(std::move(problem)); }
  // From now on reading this tensor fails.
  void Damage(const std::string& key) { damaged_ = key; }

  // REQUIRES: nothing is added any more.
  void Finish() { index_ = builder_.Build().value(); }

  const CheckpointIndex& index() const override { return index_; }
  Result<StoredArray> Locate(const GlobalTensor& tensor, const Chunk& chunk) const override {
    if (tensor.key == damaged_) return Error(ErrorKind::kChecksum, "bytes differ");
    StoredArray array;
    array.file = files_.at(chunk.file);
    array.dtype = tensor.dtype;
    array.strides = ContiguousStrides(index_.sizes(chunk));
    return array;
  }
  Result<RenderedObject> ReadObject(const ObjectEntry& object) const override {
    return objects_.at(object.key);
  }
  Result<std::uint64_t> FileSize(FileId file) const override {
    return files_.at(file)->size_bytes();
  }
  Protection protection() const override { return Protection::kCrc32; }

 private:
  IndexBuilder builder_;
  CheckpointIndex index_;
  std::map<FileId, std::shared_ptr<const ReadableFile>> files_;
  std::map<std::string, RenderedObject> objects_;
  std::string damaged_;
};

template <typename T>
Bytes BytesOf(std::initializer_list<T> values) {
  Bytes bytes;
  for (const T value : values) AppendLe(value, bytes);
  return bytes;
}

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_TOOLS_CKPT_INSPECT_FAKE_SOURCE_H_

// Tensors in memory as a CheckpointSource: the source of a program that saves.
#ifndef CKPT_CORE_CHECKPOINT_MEMORY_SOURCE_H_
#define CKPT_CORE_CHECKPOINT_MEMORY_SOURCE_H_

#include <memory>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "core/checkpoint/source.h"
#include "core/io/storage.h"
#include "core/tensor/dtype.h"
#include "core/tensor/shape.h"

namespace ckpt {

// A whole tensor, in C order, little endian.
struct MemoryTensor {
  std::string key;
  DType dtype = DType::kFloat32;
  Dims shape;
  Bytes values;
};

// Errors: kSizeMismatch (the size of the values does not fit the shape), kBadMetadata (a key occurs
// twice), kResource.
Result<std::unique_ptr<CheckpointSource>> MakeMemorySource(std::vector<MemoryTensor> tensors);

// Chunks of plain bytes, of which this process has only a part. `files` is parallel to
// `index.files()`; a null entry is in another process, and Locate returns kMissingFile for it. The
// offset_bytes and size_bytes of each chunk are those of its elements in C order.
//
// Errors: kOutOfRange (a chunk reaches past its file).
Result<std::unique_ptr<CheckpointSource>> MakePartialSource(
    CheckpointIndex index, std::vector<std::shared_ptr<const ReadableFile>> files);

}  // namespace ckpt

#endif  // CKPT_CORE_CHECKPOINT_MEMORY_SOURCE_H_

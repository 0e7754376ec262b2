// Tensors in memory as a CheckpointSource: what a program saves.
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

// A whole tensor: C order, little endian.
struct MemoryTensor {
  std::string key;
  DType dtype = DType::kFloat32;
  Dims shape;
  Bytes values;
};

// Errors: kSizeMismatch (values of another size than the shape), kBadMetadata (a key twice), kResource.
Result<std::unique_ptr<CheckpointSource>> MakeMemorySource(std::vector<MemoryTensor> tensors);

// Chunks of plain bytes whose files are here in part: `files` is parallel to `index.files()`, and where one is null,
// another process has it. Locate says kMissingFile there. Of every chunk, offset_bytes and size_bytes are those of its
// elements in C order.
//
// Errors: kOutOfRange (a chunk reaches past its file).
Result<std::unique_ptr<CheckpointSource>> MakePartialSource(
    CheckpointIndex index, std::vector<std::shared_ptr<const ReadableFile>> files);

}  // namespace ckpt

#endif  // CKPT_CORE_CHECKPOINT_MEMORY_SOURCE_H_

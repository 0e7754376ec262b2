// Tensors in memory as a CheckpointSource: what a program saves.
#ifndef CKPT_CORE_CHECKPOINT_MEMORY_SOURCE_H_
#define CKPT_CORE_CHECKPOINT_MEMORY_SOURCE_H_

#include <memory>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "core/checkpoint/source.h"
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

}  // namespace ckpt

#endif  // CKPT_CORE_CHECKPOINT_MEMORY_SOURCE_H_

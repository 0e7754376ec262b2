// A checkpoint whose coded tensors are seen decoded.
#ifndef CKPT_CONVERTERS_QUANTISED_INTERNAL_DECODED_SOURCE_H_
#define CKPT_CONVERTERS_QUANTISED_INTERNAL_DECODED_SOURCE_H_

#include <memory>
#include <vector>

#include "core/base/result.h"
#include "core/checkpoint/source.h"
#include "core/tensor/shape.h"

namespace ckpt::internal {

enum class Coding : std::uint8_t { kFp8Blocks, kMxfp4 };

// A tensor of codes and that of its scales. The scales are a grid of blocks over the values: one
// for each block, the last ones of a dim perhaps of smaller blocks.
struct CodedTensor {
  const GlobalTensor* codes = nullptr;
  const GlobalTensor* scales = nullptr;
  Coding coding = Coding::kFp8Blocks;
  Dims shape = {};  // of the values, which are bfloat16
  Dims block = {};  // its size in every dim
};

// `source` with these tensors as values, under the keys of the codes, and without their scales.
// REQUIRES: shapes and dtypes fit.
Result<std::shared_ptr<const CheckpointSource>> MakeDecodedSource(
    std::shared_ptr<const CheckpointSource> source, const std::vector<CodedTensor>& tensors);

}  // namespace ckpt::internal

#endif  // CKPT_CONVERTERS_QUANTISED_INTERNAL_DECODED_SOURCE_H_

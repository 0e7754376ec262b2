// Where the ranks of a run keep what its optimizer stores for parameters: in flat buffers of many.
#ifndef CKPT_CORE_TRAINING_RANK_BUFFERS_H_
#define CKPT_CORE_TRAINING_RANK_BUFFERS_H_

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor/box.h"

namespace ckpt {

// A part of a weight as one rank has it.
struct BufferPart {
  // The weight's key in the run's format, without the number of a layer; that number, and that of
  // an expert if experts are stacked, or 0.
  std::string name;
  std::int64_t layer = 0;
  std::int64_t expert = 0;
  // Of the weight of that layer and expert. The elements of one follow those of the other.
  std::vector<Box> boxes;
  std::int64_t begin = 0;  // in the bucket

  friend bool operator==(const BufferPart&, const BufferPart&) = default;
};

struct BufferBucket {
  std::int64_t elems = 0;         // without the room behind it that makes ranks' shares equal
  std::vector<BufferPart> parts;  // by where they begin; between them are gaps

  friend bool operator==(const BufferBucket&, const BufferBucket&) = default;
};

struct BufferId {
  std::string optimizer;   // "chained_1." of one of several optimizers
  std::int64_t group = 0;  // of ranks that have the same parameters
  std::int64_t buffer = 0;
  std::string dtypes;  // of its parameters and of their gradients: "torch.bfloat16, torch.float32"

  friend auto operator<=>(const BufferId&, const BufferId&) = default;
};

struct RankBuffer {
  BufferId id;
  std::vector<BufferBucket> buckets;

  friend bool operator==(const RankBuffer&, const RankBuffer&) = default;
};

// By their ids.
using RankBuffers = std::vector<RankBuffer>;

}  // namespace ckpt

#endif  // CKPT_CORE_TRAINING_RANK_BUFFERS_H_

// The model's parameters as single ranks have them, as the chunks of its weights show.
#ifndef CKPT_FORMATS_TORCH_DIST_INTERNAL_LOCAL_PARAMETER_H_
#define CKPT_FORMATS_TORCH_DIST_INTERNAL_LOCAL_PARAMETER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/checkpoint/index.h"
#include "core/tensor/box.h"

namespace ckpt::torch_dist {

// A parameter of one tensor rank, or of each if it is not divided.
struct LocalParameter {
  const GlobalTensor* weight = nullptr;
  std::string name;  // the weight's key without a layer's number
  std::int64_t layer = 0;
  std::int64_t expert = 0;
  // Parts of `weight`, whose elements follow one another in the rank's memory: one, or of a gated
  // fc1 the rows of the gate and those of up.
  std::vector<Box> boxes;
  std::int64_t elems = 0;
  // Which of how many parts along the dim in which tensor ranks divide it.
  std::int64_t slice = 0;
  std::int64_t num_slices = 1;
  bool is_gated = false;  // it has two boxes
  bool may_be_gated = false;
  bool is_head = false;  // a tied embedding, as the last stage has it once more
};

// Every weight's, from its chunks: Megatron stores one for each layer, expert and tensor rank, and
// two of a gated fc1. A fc1 is there both as gated and not. A chunk of several layers or experts is
// no parameter.
[[nodiscard]] std::vector<LocalParameter> LocalParameters(const CheckpointIndex& index);

}  // namespace ckpt::torch_dist

#endif  // CKPT_FORMATS_TORCH_DIST_INTERNAL_LOCAL_PARAMETER_H_

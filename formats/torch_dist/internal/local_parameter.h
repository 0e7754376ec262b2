// The model's parameters as single ranks have them.
#ifndef CKPT_FORMATS_TORCH_DIST_INTERNAL_LOCAL_PARAMETER_H_
#define CKPT_FORMATS_TORCH_DIST_INTERNAL_LOCAL_PARAMETER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/checkpoint/index.h"
#include "core/tensor/box.h"
#include "core/tensor/shape.h"
#include "core/training/rank_buffers.h"
#include "formats/megatron/division.h"
#include "formats/torch_dist/internal/run_ranks.h"

namespace ckpt::torch_dist {

// A parameter of one tensor rank, or of each if it is not divided.
struct LocalParameter {
  const GlobalTensor* weight = nullptr;
  std::string name;  // the weight's key without a layer's number
  std::int64_t layer = 0;
  std::int64_t expert = 0;
  // Parts of `weight`: one, or of a gated fc1 the rows of the gate and those of up. Their elements
  // follow one another in the rank's memory, if this is not turned.
  std::vector<Box> boxes;
  // All experts of a rank are one array of GroupedMLP, `weight1` or `weight2`: [experts, columns,
  // rows], with the rows of gate and up side by side. `expert` is the first one.
  bool is_turned = false;
  std::int64_t elems = 0;
  // Which of how many parts along the dim in which tensor ranks divide it.
  std::int64_t slice = 0;
  std::int64_t num_slices = 1;
  // A fc1 whose chunks alone show it is there both as gated, with two boxes, and not.
  bool is_gated = false;
  bool may_be_gated = false;
  bool is_head = false;  // a tied embedding, as the last stage has it once more
};

// Elements of a parameter that are a box of its weight: the first one lies at `first_elem` of the
// rank's memory, and `strides` are those of the box there.
struct LocalPiece {
  Box box;
  std::int64_t first_elem = 0;
  Dims strides;
};

// The elements [begin, end) of a parameter in the rank's memory, cut into boxes: a few for each of
// its own. REQUIRES: 0 <= begin <= end <= parameter.elems.
[[nodiscard]] std::vector<LocalPiece> CutParameter(const LocalParameter& parameter,
                                                   std::int64_t begin, std::int64_t end);

// What one of `ranks` tensor ranks has of the weight of one module, whose shape is `whole`: one
// box, or those of gate and up. Nothing: it is not known how ranks divide it, or they cannot.
[[nodiscard]] std::optional<std::vector<Box>> BoxesOfRank(std::string_view key, DimsView whole,
                                                          std::int64_t rank, std::int64_t ranks,
                                                          bool is_gated);
// The same of a weight that ranks are known to divide so.
[[nodiscard]] std::optional<std::vector<Box>> BoxesOfRank(megatron::Division division,
                                                          DimsView whole, std::int64_t rank,
                                                          std::int64_t ranks);

// Every weight's. Where the run's arguments say `ranks`, these divide it, whatever its chunks are.
// Else, and where it is not known how ranks divide it, its chunks show the parts: Megatron stores
// one for each layer, expert and tensor rank, and two of a gated fc1. Where the experts of a rank
// may be one array, they are listed so, too: `ranks.joins_experts`, or a chunk that has several.
// Errors: kResource (more parts of weights than any model has).
[[nodiscard]] Result<std::vector<LocalParameter>> LocalParameters(const CheckpointIndex& index,
                                                                  const RunRanks& ranks);

// The same without the checkpoint around it, where it lies from an element of a bucket on.
// REQUIRES: it is not turned.
[[nodiscard]] BufferPart PartOf(const LocalParameter& parameter, std::int64_t begin);

}  // namespace ckpt::torch_dist

#endif  // CKPT_FORMATS_TORCH_DIST_INTERNAL_LOCAL_PARAMETER_H_

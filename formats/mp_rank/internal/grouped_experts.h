// Weights of Megatron's GroupedMLP, one array for all experts of a rank, expert by expert.
#ifndef CKPT_FORMATS_MP_RANK_INTERNAL_GROUPED_EXPERTS_H_
#define CKPT_FORMATS_MP_RANK_INTERNAL_GROUPED_EXPERTS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "formats/torch_save/tensor_rebuild.h"

namespace ckpt::mp_rank {

// Whether the name is that of such an array: "….mlp.experts.weight1" or "weight2".
[[nodiscard]] bool IsOfGroupedExperts(std::string_view name);

struct ExpertTensor {
  std::string name;
  torch_save::RebuiltTensor local;
};

// The weights in a rank's array of `num_experts` experts, of which the first has the number
// `first_expert` in the model: "….mlp.experts.linear_fc1.weight4", …, named and shaped as the class
// has them that keeps one tensor an expert. Also of what an optimizer keeps for the array.
//
// In memory weight1 is [experts, hidden, rows of fc1], though it is shaped [hidden, …], and weight2
// is [experts, columns of fc2, hidden]: each expert's matrix follows the one before, transposed
// (`sh_ten_build_fn` in transformer/moe/experts.py). No byte is moved.
//
// REQUIRES: IsOfGroupedExperts(name). Errors: kShapeMismatch (so many experts have no such array),
// kUnsupported (the array's elements do not follow each other).
Result<std::vector<ExpertTensor>> SplitExperts(const std::string& name,
                                               const torch_save::RebuiltTensor& array,
                                               std::int64_t first_expert, std::int64_t num_experts);

}  // namespace ckpt::mp_rank

#endif  // CKPT_FORMATS_MP_RANK_INTERNAL_GROUPED_EXPERTS_H_

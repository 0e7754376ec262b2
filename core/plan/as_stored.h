// Which tensors come out of recipes as they are stored, and which whole, but in other order.
#ifndef CKPT_CORE_PLAN_AS_STORED_H_
#define CKPT_CORE_PLAN_AS_STORED_H_

#include <cstdint>
#include <optional>
#include <set>
#include <span>

#include "core/checkpoint/index.h"
#include "core/checkpoint/write_plan.h"
#include "core/plan/conversion_plan.h"
#include "core/tensor/shape.h"

namespace ckpt {

// The tensor of `source` that a recipe makes as it is stored, in however many nests. Nothing if it
// makes another one. REQUIRES: the recipe fills a tensor of `shape` exactly once.
[[nodiscard]] std::optional<std::uint32_t> TensorAsStored(const TensorRecipe& recipe,
                                                          DimsView shape,
                                                          const CheckpointIndex& source);

// Tensors of `source` of which the recipes take every element exactly once, and that none of them
// makes as it is stored. What the recipes make says all that is in these. `recipes` is parallel to
// `tensors`. Cost: that of ProveExactCover for each of them.
[[nodiscard]] std::set<std::uint32_t> TensorsTakenApart(std::span<const TargetTensor> tensors,
                                                        std::span<const TensorRecipe> recipes,
                                                        const CheckpointIndex& source);

}  // namespace ckpt

#endif  // CKPT_CORE_PLAN_AS_STORED_H_

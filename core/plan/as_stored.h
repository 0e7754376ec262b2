// Which tensors come out of a recipe as they are stored.
#ifndef CKPT_CORE_PLAN_AS_STORED_H_
#define CKPT_CORE_PLAN_AS_STORED_H_

#include <cstdint>
#include <optional>

#include "core/checkpoint/index.h"
#include "core/plan/conversion_plan.h"
#include "core/tensor/shape.h"

namespace ckpt {

// The tensor of `source` that a recipe makes as it is stored, in however many nests. Nothing if it
// makes another one. REQUIRES: the recipe fills a tensor of `shape` exactly once.
[[nodiscard]] std::optional<std::uint32_t> TensorAsStored(const TensorRecipe& recipe,
                                                          DimsView shape,
                                                          const CheckpointIndex& source);

}  // namespace ckpt

#endif  // CKPT_CORE_PLAN_AS_STORED_H_

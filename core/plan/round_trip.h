// Which tensors come out as they are stored, through one layout or through two.
#ifndef CKPT_CORE_PLAN_ROUND_TRIP_H_
#define CKPT_CORE_PLAN_ROUND_TRIP_H_

#include <cstdint>
#include <functional>
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

// How the tensor at this position of the target was made of the source; null: not known, or its
// values were cast.
using MadeOf = std::function<const TensorRecipe*(std::uint32_t position)>;

// The recipe that makes of the source what `read` makes of the target. Nothing: it is not known, or
// would have too many nests.
[[nodiscard]] std::optional<TensorRecipe> ThroughTarget(const TensorRecipe& read,
                                                        const MadeOf& made_of);

}  // namespace ckpt

#endif  // CKPT_CORE_PLAN_ROUND_TRIP_H_

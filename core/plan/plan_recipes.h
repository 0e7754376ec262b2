// From the recipes of the tensors that were asked for to those of the tensors that are written.
#ifndef CKPT_CORE_PLAN_PLAN_RECIPES_H_
#define CKPT_CORE_PLAN_PLAN_RECIPES_H_

#include <span>
#include <vector>

#include "core/base/result.h"
#include "core/checkpoint/write_plan.h"
#include "core/plan/conversion_plan.h"

namespace ckpt {

// Parallel to `plan.tensors`, which may be in another order than `tensors`, and packed. `recipes`
// is parallel to `tensors`.
//
// REQUIRES: `tensors` has every tensor of the plan that is not packed, and every part's.
// Errors: kDtypeMismatch (parts of one tensor are read in different dtypes).
// Cost: of a packed tensor, the number of its parts times that of the nests of their recipes.
Result<std::vector<TensorRecipe>> RecipesOfPlan(const WritePlan& plan,
                                                std::span<const TargetTensor> tensors,
                                                std::vector<TensorRecipe> recipes);

}  // namespace ckpt

#endif  // CKPT_CORE_PLAN_PLAN_RECIPES_H_

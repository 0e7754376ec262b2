// Proofs about a plan, before any byte is read.
#ifndef CKPT_CORE_PLAN_PLAN_CHECK_H_
#define CKPT_CORE_PLAN_PLAN_CHECK_H_

#include <span>
#include <string>

#include "core/base/status.h"
#include "core/checkpoint/index.h"
#include "core/plan/conversion_plan.h"

namespace ckpt {

// Literals and items tile their files without overlap, and the items of each tensor are consecutive
// row blocks that cover it exactly once. Errors (all of them): kInternal (a writer made a wrong
// plan), kAlreadyExists (two files have one name, or a file has the name of the journal or a
// manifest; the source names side files and shards).
Status CheckWritePlan(const WritePlan& plan);

// Every element of every target tensor is filled exactly once, from inside a tensor of `source`, by
// a cast that exists. `recipes` is parallel to `tensors`. Reports every tensor that fails. Errors:
// kCoverage, kOverlap, kOutOfRange, kDtypeMismatch, kInternal.
Status CheckRecipes(std::span<const TargetTensor> tensors, std::span<const TensorRecipe> recipes,
                    const CheckpointIndex& source);

// CheckWritePlan and CheckRecipes.
Status CheckPlan(const ConversionPlan& plan, const CheckpointIndex& source);

// XXH3-128 as hex of everything that decides the bytes of the result. A run may resume another one
// if their hashes are equal.
std::string HashPlan(const ConversionPlan& plan);

}  // namespace ckpt

#endif  // CKPT_CORE_PLAN_PLAN_CHECK_H_

// Cuts a target where its source is cut, so that a process that holds a part of the source can
// write its part of the target alone.
#ifndef CKPT_CORE_PLAN_FOLLOW_CHUNKS_H_
#define CKPT_CORE_PLAN_FOLLOW_CHUNKS_H_

#include <vector>

#include "core/base/result.h"
#include "core/checkpoint/index.h"
#include "core/plan/conversion_plan.h"

namespace ckpt {

// Rows of a target tensor that come from chunks of one source file.
struct RowsFromFile {
  Box box;  // whole in every dim but the first
  FileId file = 0;
};

// The row blocks of `target` in order. Neighbours from the same file are joined; rows that are all
// zeros belong to file 0.
//
// REQUIRES: the recipe covers the target, and source chunks cover their tensors.
// Errors: kUnsupported (a row comes from several files).
Result<std::vector<RowsFromFile>> FollowChunks(const TargetTensor& target,
                                               const TensorRecipe& recipe,
                                               const CheckpointIndex& source);

}  // namespace ckpt

#endif  // CKPT_CORE_PLAN_FOLLOW_CHUNKS_H_

// Cuts a target where its source is cut, so that a process that holds a part of the source can
// write its part of the target alone.
#ifndef CKPT_CORE_PLAN_FOLLOW_CHUNKS_H_
#define CKPT_CORE_PLAN_FOLLOW_CHUNKS_H_

#include <vector>

#include "core/base/result.h"
#include "core/checkpoint/index.h"
#include "core/plan/conversion_plan.h"

namespace ckpt {

// Elements of a target tensor that follow each other in C order and come from chunks of one source
// file.
struct RowsFromFile {
  Box box;  // one place in the first dims, whole in the last ones
  FileId file = 0;
};

// The blocks of `target` in order: of rows, or of parts of rows if a row comes from several files
// (stacked layers). Neighbours from the same file are joined; rows of zeros belong to file 0.
//
// REQUIRES: the recipe covers the target, and source chunks cover their tensors.
// Errors: kUnsupported (elements of several files interleave).
Result<std::vector<RowsFromFile>> FollowChunks(const TargetTensor& target,
                                               const TensorRecipe& recipe,
                                               const CheckpointIndex& source);

}  // namespace ckpt

#endif  // CKPT_CORE_PLAN_FOLLOW_CHUNKS_H_

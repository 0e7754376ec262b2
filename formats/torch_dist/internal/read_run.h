// A run that Megatron-Core stored as torch_dist, read back.
#ifndef CKPT_FORMATS_TORCH_DIST_INTERNAL_READ_RUN_H_
#define CKPT_FORMATS_TORCH_DIST_INTERNAL_READ_RUN_H_

#include "core/base/result.h"
#include "core/checkpoint/index.h"
#include "core/checkpoint/source.h"
#include "core/training/run_format.h"
#include "core/training/training_run.h"

namespace ckpt::torch_dist {

// Whether the checkpoint holds anything of an optimizer, by its keys.
[[nodiscard]] bool HoldsRun(const CheckpointIndex& index);

// Whether its common state alone does: an optimizer is known by the momentum of its groups, as SGD
// has one, and otherwise keeps tensors. One that cannot be read holds none.
[[nodiscard]] bool HoldsGroups(const CheckpointSource& source);

// The optimizer's tensors, where each parameter has its own: the forms of ReadRun. Errors:
// kUnsupported (a form that does not say where a parameter lies, moments of Adam beside those of
// SGD), kMissing (a trained weight lacks a moment).
Result<OptimizerTensors> FindTensors(const CheckpointIndex& index);

// Progress, arguments and optimizer of the run, where each parameter has its own tensors: the forms
// `fully_reshardable`, `fully_sharded_model_space` (flattened ones too) and those of optimizers
// that are not distributed, and dp_reshardable as UnpackBuffers shows it, whose buffers are
// `run.buffers`. Which group a parameter belongs to is not stored: `group_of` has the
// embedding and the head alone, if these have a rate of their own.
//
// Exact weights that do not round to the model's are among the assumptions (CheckAreExact).
//
// Errors: those of FindTensors; kUnsupported (parameters at different updates, exact weights that
// are none), kMissing (there is no optimizer, a count is not there), kBadMetadata, those of
// CheckKeepsMoments.
Result<StoredRun> ReadRun(const CheckpointSource& source, RunDetail detail);

}  // namespace ckpt::torch_dist

#endif  // CKPT_FORMATS_TORCH_DIST_INTERNAL_READ_RUN_H_

// A run that an FSDP2 program stored, read back: the way back from run_objects.h, and what others
// store under prefixes of their own.
#ifndef CKPT_FORMATS_FSDP2_INTERNAL_READ_RUN_H_
#define CKPT_FORMATS_FSDP2_INTERNAL_READ_RUN_H_

#include "core/base/result.h"
#include "core/checkpoint/index.h"
#include "core/checkpoint/source.h"
#include "core/layout/value.h"
#include "core/training/run_format.h"
#include "core/training/training_run.h"

namespace ckpt::fsdp2 {

// The arguments of a run of Megatron's or of this program; nothing if there are none. Errors: those
// of ReadStoredMembers.
Result<layout::Configuration> ReadArgs(const CheckpointSource& source);

// Whether the checkpoint holds an optimizer that keeps something for parameters with names.
[[nodiscard]] bool HoldsRun(const CheckpointIndex& index);

// Whether it holds SGD's groups of parameters with names, which without momentum are all of it.
[[nodiscard]] bool HoldsGroups(const CheckpointSource& source);

// Whether either may be so, by the keys alone.
[[nodiscard]] bool HasKeysOf(const CheckpointIndex& index);

// The optimizer's tensors. Errors: those of ReadRun that concern keys.
Result<OptimizerTensors> FindTensors(const CheckpointIndex& index);

// Optimizer and progress of the run. The optimizer may lie under any of the prefixes of
// ParseOptimizerKey, its groups nested or flattened. A run of another program does not say its
// arguments: then `args` have the optimizer's settings, its iterations are the optimizer's updates,
// and no sample is consumed.
//
// Errors: kUnsupported (several optimizers, one that is neither Adam nor SGD or that computes in a
// way that has no setting here, parameters at different updates), kMissing (a trained weight lacks
// a moment or its count, nothing says how often it was updated), kBadMetadata, those of ReadBox and
// CheckKeepsMoments.
// Cost: reads one number of every trained parameter.
Result<StoredRun> ReadRun(const CheckpointSource& source, RunDetail detail);

}  // namespace ckpt::fsdp2

#endif  // CKPT_FORMATS_FSDP2_INTERNAL_READ_RUN_H_

// A run that Megatron-FSDP stored, read back: the way back from run_objects.h.
#ifndef CKPT_FORMATS_FSDP_DTENSOR_INTERNAL_READ_RUN_H_
#define CKPT_FORMATS_FSDP_DTENSOR_INTERNAL_READ_RUN_H_

#include "core/base/result.h"
#include "core/checkpoint/index.h"
#include "core/checkpoint/source.h"
#include "core/layout/value.h"
#include "core/training/run_format.h"
#include "core/training/training_run.h"

namespace ckpt::fsdp_dtensor {

// The members of the object `args`, or what Megatron-Bridge keeps in its place; nothing if there is
// neither. Errors: those of ReadStoredMembers and ReadBridgeArgs; kUnsupported (tensors are stored
// in an order that depends on the ranks).
Result<layout::Configuration> ReadArgs(const CheckpointSource& source);

// Whether the checkpoint holds anything of an optimizer.
[[nodiscard]] bool HoldsRun(const CheckpointIndex& index);

// The optimizer's tensors. Does not fail.
Result<OptimizerTensors> FindTensors(const CheckpointIndex& index);

// Transformer Engine's optimizer keeps moments of float16 and of 8 bits divided by a factor, which
// Megatron-FSDP does not store: they are neither read nor written. Errors: kUnsupported.
Status CheckMomentDtype(const std::string& key, DType dtype);
// Of all moments. REQUIRES: `tensors` is of `index`.
Status CheckNeedNoFactor(const CheckpointIndex& index, const OptimizerTensors& tensors);

// Progress, arguments and optimizer of the run. Nothing that the optimizer keeps is read.
//
// Errors: kMissing (nothing says how often the optimizer updated the weights, as in a checkpoint of
// weights only; a weight that it updates has no moment, all of them; a count is not there),
// kUnsupported (parameters are at different updates, or the learning rate is at another one than
// the optimizer), kBadMetadata, those of CheckKeepsMoments.
Result<StoredRun> ReadRun(const CheckpointSource& source, RunDetail detail);

}  // namespace ckpt::fsdp_dtensor

#endif  // CKPT_FORMATS_FSDP_DTENSOR_INTERNAL_READ_RUN_H_

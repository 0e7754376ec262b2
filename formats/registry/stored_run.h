// The run that wrote a checkpoint, whichever format it is in.
#ifndef CKPT_FORMATS_REGISTRY_STORED_RUN_H_
#define CKPT_FORMATS_REGISTRY_STORED_RUN_H_

#include "core/base/result.h"
#include "core/checkpoint/source.h"
#include "core/layout/value.h"
#include "core/training/training_run.h"

namespace ckpt {

// Megatron's arguments, by their names. Nothing if the checkpoint has none. Errors: those of
// Format::read_args.
Result<layout::Configuration> ReadRunArgs(const CheckpointSource& source);

// Errors: those of RunFormat::read. One format stores runs: a checkpoint that is in another one
// lacks what that needs.
Result<StoredRun> ReadStoredRun(const CheckpointSource& source);

}  // namespace ckpt

#endif  // CKPT_FORMATS_REGISTRY_STORED_RUN_H_

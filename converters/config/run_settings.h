// Settings of a training run, or of a model alone, read from a checkpoint's `args`.
#ifndef CKPT_CONVERTERS_CONFIG_RUN_SETTINGS_H_
#define CKPT_CONVERTERS_CONFIG_RUN_SETTINGS_H_

#include "core/base/result.h"
#include "core/layout/value.h"

namespace ckpt {

// What decides the numbers of the run that stored `args`: model, batch, precision, optimizer and
// schedule, under the names that the trainer reads. How ranks share the work is left to the run
// that resumes. The differences between the two programs are explained in megatron_to_run.table.
// For a run of ours (run_args.h) it gives every setting that decides a number, as it was.
//
// Errors: kUnsupported (the run computes something that the trainer does not; all of it; or another
// version of ckptkit wrote the arguments), kBadMetadata (an argument is missing or of the wrong
// kind).
Result<layout::Configuration> RunSettings(const layout::Configuration& args);

// The model alone (megatron_to_model.table). For a run of ours, the settings of the run that are
// stored as our own arguments are included; for a conversion (megatron_args.h), it gives what
// ModelSettings gave.
//
// Errors: kUnsupported (the model computes something that the trainer does not; all of it; or as
// above), kBadMetadata.
Result<layout::Configuration> StoredModelSettings(const layout::Configuration& args);

// The same for what depends on the parameters' names and shapes alone, whether or not the trainer
// computes the model.
//
// Errors: kUnsupported (as above, of the version), kBadMetadata.
Result<layout::Configuration> StoredModelShape(const layout::Configuration& args);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_CONFIG_RUN_SETTINGS_H_

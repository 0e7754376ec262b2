// Settings of a training run, or of a model alone, that a checkpoint's `args` tell of.
#ifndef CKPT_CONVERTERS_CONFIG_RUN_SETTINGS_H_
#define CKPT_CONVERTERS_CONFIG_RUN_SETTINGS_H_

#include "core/base/result.h"
#include "core/layout/value.h"

namespace ckpt {

// What decides the numbers of the run that stored `args`: model, batch, precision, optimizer and
// schedule, under the names that the trainer reads. How ranks share the work is left to the run
// that goes on. The differences between the two programs are explained in megatron_to_run.table. Of
// a run of ours (run_args.h), every setting that decides a number, as it was.
//
// Errors: kUnsupported (the run computes something that the trainer does not; all of it; or another
// version of ckptkit wrote the arguments), kBadMetadata (an argument is missing or of the wrong
// kind).
Result<layout::Configuration> RunSettings(const layout::Configuration& args);

// The model alone, whatever a run did with it (megatron_to_model.table). Of a run of ours, all that
// it kept beside Megatron's arguments is there, settings of the run too; of a conversion
// (megatron_args.h), what ModelSettings says.
//
// Errors: kUnsupported (the model computes something that the trainer does not; all of it; or as
// above), kBadMetadata.
Result<layout::Configuration> StoredModelSettings(const layout::Configuration& args);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_CONFIG_RUN_SETTINGS_H_

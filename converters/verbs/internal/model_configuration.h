// What a checkpoint says of its model: config.json, and the arguments of the run that saved it.
#ifndef CKPT_CONVERTERS_VERBS_INTERNAL_MODEL_CONFIGURATION_H_
#define CKPT_CONVERTERS_VERBS_INTERNAL_MODEL_CONFIGURATION_H_

#include "converters/verbs/model_source.h"
#include "core/base/result.h"
#include "core/io/storage.h"
#include "core/layout/value.h"

namespace ckpt {

// The first directory that has a config.json: `given`, the one inside the checkpoint, the
// checkpoint's own. Empty if none has. Errors: kNotFound (`given` has none), kIo.
Result<Path> FindAssets(Storage& storage, const OpenedCheckpoint& checkpoint, const Path& given);

// The arguments of the run that saved it; empty if it stores none, or if they are lost and `assets`
// say what model it is. Errors: those of reading them.
Result<layout::Configuration> ArgsOfRun(const ModelSource& model);

// Fills in `assets`, `config` and `ignored` of a model whose checkpoint is known.
// Errors: kNotFound (nothing says what model it is), kValueMismatch (config.json contradicts the
// run's arguments), and those of ParseHfConfig and ConfigFromMegatronArgs.
Status ReadConfiguration(Storage& storage, const OpenModelOptions& options, ModelSource& model);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_VERBS_INTERNAL_MODEL_CONFIGURATION_H_

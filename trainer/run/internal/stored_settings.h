// Settings that a run takes from the checkpoint that it resumes.
#ifndef CKPT_TRAINER_RUN_INTERNAL_STORED_SETTINGS_H_
#define CKPT_TRAINER_RUN_INTERNAL_STORED_SETTINGS_H_

#include "converters/verbs/training_state.h"
#include "core/base/result.h"
#include "core/layout/value.h"

namespace ckpt::train {

// The settings with which `state` was made, without those that concern only one invocation. With
// `finetune`, only those of the model; of a run of another program, those of the model and the
// optimizer. Rates, and whether all parameters decay, are what their groups say. Given settings
// override them. Errors: those of RunSettings and ModelSettings.
Result<layout::Configuration> StoredSettings(const TrainingState& state, bool finetune);

// Checks that a run with `stored` settings keeps the stored model under the `given` ones. Settings
// of expert balancing may change; another model needs `finetune`. Errors: kUsage, naming every
// setting that changes the model.
Status CheckKeepsModel(const layout::Configuration& stored, const layout::Configuration& given);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_INTERNAL_STORED_SETTINGS_H_

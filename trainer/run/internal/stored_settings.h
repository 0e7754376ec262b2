// Settings that a run takes over from the checkpoint it goes on from.
#ifndef CKPT_TRAINER_RUN_INTERNAL_STORED_SETTINGS_H_
#define CKPT_TRAINER_RUN_INTERNAL_STORED_SETTINGS_H_

#include "converters/verbs/training_state.h"
#include "core/base/result.h"
#include "core/layout/value.h"

namespace ckpt::train {

// Those that `state` was made with, less what concerns one invocation only. `finetune`: those of
// the model alone. Settings that are given go before them. Errors: those of RunSettings.
Result<layout::Configuration> StoredSettings(const TrainingState& state, bool finetune);

// Whether a run that goes on with `stored` settings has the stored model under the `given` ones, too. How experts are kept in
// balance may change on the way; another model needs `finetune`. Errors: kUsage, naming every setting that makes another model.
Status CheckKeepsModel(const layout::Configuration& stored, const layout::Configuration& given);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_INTERNAL_STORED_SETTINGS_H_

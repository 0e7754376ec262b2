// Settings that a run takes over from the checkpoint it goes on from.
#ifndef CKPT_TOOLS_CKPT_TRAIN_STORED_SETTINGS_H_
#define CKPT_TOOLS_CKPT_TRAIN_STORED_SETTINGS_H_

#include "converters/verbs/training_state.h"
#include "core/base/result.h"
#include "core/layout/value.h"

namespace ckpt::train {

// Those that `state` was made with, less what concerns one invocation only. `finetune`: those of
// the model alone. Settings that are given go before them. Errors: those of RunSettings.
Result<layout::Configuration> StoredSettings(const TrainingState& state, bool finetune);

}  // namespace ckpt::train

#endif  // CKPT_TOOLS_CKPT_TRAIN_STORED_SETTINGS_H_

// Settings that a run takes over from the checkpoint it goes on from.
#ifndef CKPT_TOOLS_CKPT_TRAIN_STORED_SETTINGS_H_
#define CKPT_TOOLS_CKPT_TRAIN_STORED_SETTINGS_H_

#include <optional>

#include "core/base/result.h"
#include "core/io/storage.h"
#include "core/layout/value.h"
#include "tools/ckpt-train/checkpoint_settings.h"

namespace ckpt::train {

// Settings that the newest valid checkpoint below `load` was made with; nothing if there is none.
// Those that are given go before them. Errors: kUsage, those of OpenTrainingState.
Result<std::optional<layout::Configuration>> StoredSettings(Storage& storage,
                                                            const CheckpointSettings& settings);

}  // namespace ckpt::train

#endif  // CKPT_TOOLS_CKPT_TRAIN_STORED_SETTINGS_H_

// Settings of a model that have no effect, given the other settings.
#ifndef CKPT_TRAINER_MODEL_INTERNAL_IDLE_MODEL_SETTINGS_H_
#define CKPT_TRAINER_MODEL_INTERNAL_IDLE_MODEL_SETTINGS_H_

#include "trainer/model/model_config.h"
#include "trainer/model/settings_reader.h"

namespace ckpt::trainer {

// Refuses settings that were given but have no effect on `config`, which was read from `settings`.
void RefuseIdleModelSettings(SettingsReader& settings, const ModelConfig& config);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_MODEL_INTERNAL_IDLE_MODEL_SETTINGS_H_

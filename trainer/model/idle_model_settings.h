// Settings of a model that decide nothing, given the others.
#ifndef CKPT_TRAINER_MODEL_IDLE_MODEL_SETTINGS_H_
#define CKPT_TRAINER_MODEL_IDLE_MODEL_SETTINGS_H_

#include "trainer/model/model_config.h"
#include "trainer/model/settings_reader.h"

namespace ckpt::trainer {

// Refuses those that were given and that `config`, which was made of `settings`, does not depend on.
void RefuseIdleModelSettings(SettingsReader& settings, const ModelConfig& config);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_MODEL_IDLE_MODEL_SETTINGS_H_

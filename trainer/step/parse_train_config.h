// Parses the settings of a training run: Megatron's option names, with underscores.
#ifndef CKPT_TRAINER_STEP_PARSE_TRAIN_CONFIG_H_
#define CKPT_TRAINER_STEP_PARSE_TRAIN_CONFIG_H_

#include "core/base/result.h"
#include "trainer/model/settings_reader.h"
#include "trainer/step/train_config.h"

namespace ckpt::trainer {

// Reads every setting of a run on `num_ranks` ranks, those of its model included
// (docs/guides/train.md lists them with defaults), and validates the configuration as a whole. The
// caller may have read other settings before.
//
// Errors: kUsage, all violations at once: unknown, missing or ill-typed settings, those of
// ParseModelConfig and of ValidateTrainConfig.
Result<TrainConfig> ParseTrainConfig(SettingsReader& settings, int num_ranks);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_STEP_PARSE_TRAIN_CONFIG_H_

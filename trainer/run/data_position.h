// The place in the data where a run goes on.
#ifndef CKPT_TRAINER_RUN_DATA_POSITION_H_
#define CKPT_TRAINER_RUN_DATA_POSITION_H_

#include <string>

#include "core/base/status.h"
#include "trainer/run/checkpoint_settings.h"
#include "trainer/run/run_config.h"

namespace ckpt::train {

// Notes in `run` the `identity` of the data it trains on, and compares it with what the stored run, if it goes on from one,
// counted its samples in: in other data, or sequences of another length, the same number would skip or repeat some.
//
// Errors: kUsage (they differ, and restart_data does not ask for a new start in them).
Status PlaceInData(const std::string& identity, const CheckpointSettings& settings, RunConfig& run);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_DATA_POSITION_H_

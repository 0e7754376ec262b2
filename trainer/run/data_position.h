// The place in the data at which a run resumes.
#ifndef CKPT_TRAINER_RUN_DATA_POSITION_H_
#define CKPT_TRAINER_RUN_DATA_POSITION_H_

#include <string>

#include "core/base/status.h"
#include "trainer/run/checkpoint_settings.h"
#include "trainer/run/run_config.h"

namespace ckpt::train {

// Stores the `identity` of the run's data in `run`. If the run resumes a stored run, compares it
// with the data of that run: in other data, or with sequences of another length, the same sample
// number would skip or repeat samples.
//
// Errors: kUsage (they differ, and restart_data is not set).
Status PlaceInData(const std::string& identity, const CheckpointSettings& settings, RunConfig& run);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_DATA_POSITION_H_

// The place in the data at which a run resumes.
#ifndef CKPT_TRAINER_RUN_DATA_POSITION_H_
#define CKPT_TRAINER_RUN_DATA_POSITION_H_

#include <string_view>

#include "core/base/status.h"
#include "trainer/data/sequence_source.h"
#include "trainer/run/checkpoint_settings.h"
#include "trainer/run/run_config.h"

namespace ckpt::train {

// Whether two runs have the same data, by what PlaceInData stored of them. What earlier versions
// stored has no hash of samples: then sizes and order alone count.
[[nodiscard]] bool IsSameData(std::string_view stored, std::string_view now);

// Stores in `run` what its `data` are: their sizes and order, and a hash of a few samples. If the
// run resumes a stored run, compares that with the data of the stored run: in other data, or with
// sequences of another length, the same sample number would skip or repeat samples.
//
// Errors: kUsage (they differ, and restart_data is not set).
Status PlaceInData(const trainer::SequenceSource& data, const CheckpointSettings& settings,
                   RunConfig& run);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_DATA_POSITION_H_

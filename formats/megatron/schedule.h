// Where a run's learning rate stands.
#ifndef CKPT_FORMATS_MEGATRON_SCHEDULE_H_
#define CKPT_FORMATS_MEGATRON_SCHEDULE_H_

#include <string_view>

#include "core/base/status.h"
#include "core/layout/value.h"
#include "core/training/training_run.h"

namespace ckpt::megatron {

// The scheduler counts samples, in whole batches. A run resumes where it stands at the same update as
// the optimizer. `key` names the object in errors.
//
// Errors: kUnsupported (it does not), kMissing (`args` have no global_batch_size).
Status CheckSchedule(const TrainingRun& run, const layout::Configuration& args,
                     std::string_view key);

}  // namespace ckpt::megatron

#endif  // CKPT_FORMATS_MEGATRON_SCHEDULE_H_

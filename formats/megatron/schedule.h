// Where a run's learning rate stands.
#ifndef CKPT_FORMATS_MEGATRON_SCHEDULE_H_
#define CKPT_FORMATS_MEGATRON_SCHEDULE_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/base/status.h"
#include "core/layout/value.h"
#include "core/training/training_run.h"

namespace ckpt::megatron {

// The scheduler counts samples, in whole batches. A run resumes where it stands at the same update
// as the optimizer. `key` names the object in errors.
//
// If `args` do not say the batch, it is what the iterations consumed each. A run of another program
// may have counted no samples at all (`run` and its schedule are at 0): then there is nothing to
// compare, and the optimizer's updates are the run's position.
//
// Errors: kUnsupported (it does not; or batches were unequal, and nothing says where it is).
Status CheckSchedule(const TrainingRun& run, const layout::Configuration& args,
                     std::string_view key);

// How often an optimizer that does not count updated the weights: the schedule takes a step after
// every update. Nothing if batches were unequal, or the schedule is not at a multiple of them.
[[nodiscard]] std::optional<std::int64_t> UpdatesOfSchedule(const TrainingRun& run,
                                                            const layout::Configuration& args);

// The run's global_batch_size, in samples; nothing if `args` do not say it.
[[nodiscard]] std::optional<std::int64_t> StoredBatch(const layout::Configuration& args);

}  // namespace ckpt::megatron

#endif  // CKPT_FORMATS_MEGATRON_SCHEDULE_H_

// The learning rate as a function of the step, computed as Megatron's OptimizerParamScheduler does.
#ifndef CKPT_TRAINER_OPTIM_SCHEDULE_H_
#define CKPT_TRAINER_OPTIM_SCHEDULE_H_

#include <cstdint>
#include <string_view>

#include "core/base/status.h"

namespace ckpt::trainer {

enum class DecayStyle : std::uint8_t { kConstant, kLinear, kCosine, kWsd };
enum class WsdDecayStyle : std::uint8_t { kExponential, kLinear, kCosine, kMinusSqrt };

[[nodiscard]] std::string_view DecayStyleName(DecayStyle style);  // "cosine", "WSD", …

// Steps are updates of the optimizer. Megatron counts samples: one step is a global batch of them.
struct ScheduleConfig {
  DecayStyle style = DecayStyle::kConstant;
  double max_lr = 1e-3;
  double min_lr = 0;   // after the end of decay
  double init_lr = 0;  // at the start of warm-up
  std::int64_t warmup_steps = 0;
  std::int64_t decay_steps = 0;  // from the start of training, warm-up included; unused if constant
  WsdDecayStyle wsd_style = WsdDecayStyle::kExponential;
  std::int64_t wsd_decay_steps = 0;  // length of the final decay, the last part of decay_steps
};

// Errors: kUsage, all violations at once.
Status ValidateSchedule(const ScheduleConfig& schedule);

// The rate of update number `step`, counted from 1. As in Megatron, the rate depends on the updates
// done before: the first update of a warm-up uses init_lr, and update warmup_steps + 1 is the first
// with max_lr. (Megatron logs the rate of the next update.)
//
// REQUIRES: ValidateSchedule accepts the schedule; step >= 1.
[[nodiscard]] double LearningRate(const ScheduleConfig& schedule, std::int64_t step);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPTIM_SCHEDULE_H_

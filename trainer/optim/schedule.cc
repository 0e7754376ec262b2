#include "trainer/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include <fmt/format.h>

namespace ckpt::trainer {
namespace {

Status Violation(std::string_view rule, const std::string& expected, const std::string& actual) {
  return Error(ErrorKind::kUsage, rule).Expected(expected).Actual(actual);
}

// Half a period of a cosine, from 1 to 0.
double CosineFall(double ratio) { return 0.5 * (std::cos(std::numbers::pi * ratio) + 1.0); }

// Falls from 1 to 0 as `ratio` goes from 0 to 1.
double WsdFall(WsdDecayStyle style, double ratio) {
  switch (style) {
    case WsdDecayStyle::kExponential:
      return 2.0 * std::pow(0.5, ratio) - 1.0;
    case WsdDecayStyle::kLinear:
      return 1.0 - ratio;
    case WsdDecayStyle::kCosine:
      return CosineFall(ratio);
    case WsdDecayStyle::kMinusSqrt:
      return 1.0 - std::sqrt(ratio);
  }
  return 0;
}

// The fraction of max_lr - min_lr that is left after `done` updates. REQUIRES: warm-up is over.
double Remaining(const ScheduleConfig& schedule, std::int64_t done) {
  const double ratio = static_cast<double>(done - schedule.warmup_steps) /
                       static_cast<double>(schedule.decay_steps - schedule.warmup_steps);
  switch (schedule.style) {
    case DecayStyle::kConstant:
      return 1;
    case DecayStyle::kLinear:
      return 1.0 - ratio;
    case DecayStyle::kCosine:
      return CosineFall(ratio);
    case DecayStyle::kWsd: {
      const std::int64_t stable_steps = schedule.decay_steps - schedule.wsd_decay_steps;
      if (done <= stable_steps) return 1;
      return WsdFall(schedule.wsd_style, static_cast<double>(done - stable_steps) /
                                             static_cast<double>(schedule.wsd_decay_steps));
    }
  }
  return 0;
}

}  // namespace

std::string_view DecayStyleName(DecayStyle style) {
  switch (style) {
    case DecayStyle::kConstant:
      return "constant";
    case DecayStyle::kLinear:
      return "linear";
    case DecayStyle::kCosine:
      return "cosine";
    case DecayStyle::kWsd:
      return "WSD";
  }
  return {};
}

// Messages use the names of the run's settings, which the user knows.
Status ValidateSchedule(const ScheduleConfig& schedule) {
  Status violations;
  const auto require = [&violations](bool holds, std::string_view rule, const std::string& expected,
                                     const std::string& actual) {
    if (!holds) violations.Add(Violation(rule, expected, actual));
  };
  const double min_lr = schedule.min_lr;
  const double max_lr = schedule.max_lr;
  const double init_lr = schedule.init_lr;
  require(std::isfinite(max_lr), "lr is not a finite number", "a finite rate",
          fmt::format("{}", max_lr));
  require(min_lr >= 0, "min_lr is negative", "0 or more", fmt::format("{}", min_lr));
  require(max_lr >= min_lr, "lr lies below min_lr", fmt::format("at least {}", min_lr),
          fmt::format("{}", max_lr));
  require(init_lr >= 0, "lr_warmup_init is negative", "0 or more", fmt::format("{}", init_lr));
  require(init_lr <= max_lr, "lr_warmup_init lies above lr", fmt::format("at most {}", max_lr),
          fmt::format("{}", init_lr));
  require(schedule.warmup_steps >= 0, "lr_warmup_iters is negative", "0 or more",
          fmt::format("{}", schedule.warmup_steps));
  if (schedule.style == DecayStyle::kConstant) return violations;
  require(schedule.decay_steps > std::max<std::int64_t>(schedule.warmup_steps, 0),
          "decay ends before warm-up",
          fmt::format("lr_decay_iters above {}", schedule.warmup_steps),
          fmt::format("{}", schedule.decay_steps));
  if (schedule.style == DecayStyle::kWsd) {
    require(1 <= schedule.wsd_decay_steps && schedule.wsd_decay_steps <= schedule.decay_steps,
            "lr_wsd_decay_iters is not part of lr_decay_iters",
            fmt::format("1 to {}", schedule.decay_steps),
            fmt::format("{}", schedule.wsd_decay_steps));
  }
  return violations;
}

double LearningRate(const ScheduleConfig& schedule, std::int64_t step) {
  const std::int64_t done = step - 1;
  if (schedule.warmup_steps > 0 && done <= schedule.warmup_steps) {
    return schedule.init_lr + (schedule.max_lr - schedule.init_lr) * static_cast<double>(done) /
                                  static_cast<double>(schedule.warmup_steps);
  }
  if (schedule.style == DecayStyle::kConstant) return schedule.max_lr;
  if (done > schedule.decay_steps) return schedule.min_lr;
  return schedule.min_lr + Remaining(schedule, done) * (schedule.max_lr - schedule.min_lr);
}

}  // namespace ckpt::trainer

#include "tools/ckpt-train/experiment/internal/chart_axis.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <fmt/format.h>

namespace ckpt::train {
namespace {

constexpr double kMostTicks = 7;

// The smallest 1, 2 or 5 times a power of ten that cuts `range` into at most kMostTicks steps.
double TickStep(double range) {
  const double least = range / kMostTicks;
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double digit : {1.0, 2.0, 5.0}) {
    if (digit * power >= least) return digit * power;
  }
  return 10 * power;
}

std::string Label(double value) { return fmt::format("{:.6g}", value); }

}  // namespace

ChartAxis::ChartAxis(Scale scale, std::span<const double> values, bool tight) : scale_(scale) {
  if (scale == Scale::kLog) {
    SpanLog(values);
  } else {
    SpanLinear(values, tight);
  }
}

double ChartAxis::Place(double value) const {
  if (scale_ == Scale::kLog) {
    if (value == 0) return 0;
    value = std::log10(value);
  }
  return (value - low_) / (high_ - low_);
}

void ChartAxis::SpanLinear(std::span<const double> values, bool tight) {
  if (!values.empty()) {
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    low_ = *least;
    high_ = *most;
  }
  if (low_ == high_) {
    low_ -= 0.5;
    high_ += 0.5;
  }
  const double step = TickStep(high_ - low_);
  if (!tight) {
    low_ = step * std::floor(low_ / step);
    high_ = step * std::ceil(high_ / step);
  }
  // Counted, since sums of the step would drift.
  const auto first = static_cast<std::int64_t>(std::ceil(low_ / step - 1e-9));
  const auto last = static_cast<std::int64_t>(std::floor(high_ / step + 1e-9));
  for (std::int64_t i = first; i <= last; ++i) {
    const double value = step * static_cast<double>(i);
    ticks_.push_back({value, Label(value)});
  }
}

void ChartAxis::SpanLog(std::span<const double> values) {
  double least = INFINITY;
  double most = 0;
  bool has_zero = false;
  for (const double value : values) {
    has_zero = has_zero || value == 0;
    if (value > 0) least = std::min(least, value);
    most = std::max(most, value);
  }
  if (most == 0) least = most = 1;
  int low = static_cast<int>(std::floor(std::log10(least)));
  const int high = std::max(static_cast<int>(std::ceil(std::log10(most))), low + 1);
  if (has_zero) {
    --low;
    ticks_.push_back({0, "0"});
  }
  low_ = low;
  high_ = high;
  const int every = std::max(1, (high - low + 7) / 8);
  for (int decade = has_zero ? low + 1 : low; decade <= high; decade += every) {
    ticks_.push_back({std::pow(10, decade), fmt::format("1e{}", decade)});
  }
}

}  // namespace ckpt::train

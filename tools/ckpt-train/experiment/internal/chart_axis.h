// ChartAxis: where values lie along an axis of a chart, and which of them are written beside it.
#ifndef CKPT_TOOLS_CKPT_TRAIN_EXPERIMENT_INTERNAL_CHART_AXIS_H_
#define CKPT_TOOLS_CKPT_TRAIN_EXPERIMENT_INTERNAL_CHART_AXIS_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ckpt::train {

enum class Scale : std::uint8_t {
  kLinear,
  // Zeros have no logarithm: they lie on a line of their own, below everything else.
  kLog,
};

struct Tick {
  double value = 0;
  std::string label;
};

class ChartAxis {
 public:
  // Covers the values, which may be none, and more, so that it ends at ticks (an x axis that is to
  // end where its values do is `tight`). REQUIRES: all values are finite, those of kLog at least 0.
  ChartAxis(Scale scale, std::span<const double> values, bool tight = false);

  // From 0 at the lower end to 1 at the upper. REQUIRES: the value is covered.
  [[nodiscard]] double Place(double value) const;
  // Ascending; at least one.
  [[nodiscard]] const std::vector<Tick>& ticks() const { return ticks_; }

 private:
  void SpanLinear(std::span<const double> values, bool tight);
  void SpanLog(std::span<const double> values);

  Scale scale_;
  // Values, or their decimal logarithms.
  double low_ = 0;
  double high_ = 1;
  std::vector<Tick> ticks_;
};

}  // namespace ckpt::train

#endif  // CKPT_TOOLS_CKPT_TRAIN_EXPERIMENT_INTERNAL_CHART_AXIS_H_

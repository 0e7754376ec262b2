// LineChart: curves over one x axis as a picture, in SVG that needs neither fonts nor scripts.
#ifndef CKPT_TOOLS_CKPT_TRAIN_EXPERIMENT_INTERNAL_LINE_CHART_H_
#define CKPT_TOOLS_CKPT_TRAIN_EXPERIMENT_INTERNAL_LINE_CHART_H_

#include <cstddef>
#include <string>
#include <vector>

#include "tools/ckpt-train/experiment/internal/chart_axis.h"

namespace ckpt::train {

struct ChartPoint {
  double x = 0;
  double y = 0;
};

struct ChartCurve {
  std::size_t series = 0;  // of the chart
  std::vector<ChartPoint> points;
};

// A coordinate system of its own, as wide as the others.
struct ChartPanel {
  std::string title;
  Scale scale = Scale::kLinear;
  std::vector<ChartCurve> curves;  // later ones lie over earlier ones
};

// A line from top to bottom.
struct ChartMark {
  double x = 0;
  std::string label;
};

struct LineChart {
  std::string title;
  std::string x_label;
  // Names for the legend. The first series is drawn as a wide grey band that others lie on: what
  // they are compared with.
  std::vector<std::string> series;
  std::vector<ChartMark> marks;
  std::vector<ChartPanel> panels;  // from top to bottom
};

// An SVG document. The same chart gives the same bytes.
// REQUIRES: numbers are finite, those of logarithmic panels at least 0; every curve names a series.
[[nodiscard]] std::string ChartSvg(const LineChart& chart);

}  // namespace ckpt::train

#endif  // CKPT_TOOLS_CKPT_TRAIN_EXPERIMENT_INTERNAL_LINE_CHART_H_

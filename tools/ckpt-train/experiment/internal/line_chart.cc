#include "tools/ckpt-train/experiment/internal/line_chart.h"

#include <array>
#include <string_view>

#include <fmt/format.h>

#include "core/base/check.h"

namespace ckpt::train {
namespace {

// In pixels.
constexpr double kPlotLeft = 64;
constexpr double kPlotWidth = 660;
constexpr double kLegendLeft = kPlotLeft + kPlotWidth + 20;
constexpr double kWidth = 960;
constexpr double kTop = 66;  // of the first panel's plot; titles are above
constexpr double kPlotHeight = 210;
constexpr double kPanelPitch = kPlotHeight + 48;
constexpr double kBelow = 22;  // of the last plot: tick labels and x label
constexpr double kLegendPitch = 20;

// Told apart by most eyes, in pairs by dashes as well.
constexpr std::array<std::string_view, 8> kColours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                      "#e69f00", "#56b4e9", "#7a3e9d", "#6b5b2a"};

std::string Escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '&':
        out += "&amp;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// A tenth of a pixel is finer than any screen, and keeps the file small.
std::string Pixel(double value) {
  std::string text = fmt::format("{:.1f}", value);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text;
}

std::string StrokeOf(std::size_t series) {
  if (series == 0) return "stroke=\"#c4c4c4\" stroke-width=\"5\"";
  const std::size_t colour = (series - 1) % kColours.size();
  const bool is_dashed = (series - 1) / kColours.size() % 2 == 1;
  return fmt::format("stroke=\"{}\" stroke-width=\"1.5\"{}", kColours[colour],
                     is_dashed ? " stroke-dasharray=\"6 3\"" : "");
}

std::string Line(double x1, double y1, double x2, double y2, std::string_view stroke) {
  return fmt::format("<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" {}/>\n", Pixel(x1), Pixel(y1),
                     Pixel(x2), Pixel(y2), stroke);
}

// `style`: further attributes.
std::string Text(double x, double y, std::string_view text, std::string_view style = {}) {
  return fmt::format("<text x=\"{}\" y=\"{}\"{}{}>{}</text>\n", Pixel(x), Pixel(y),
                     style.empty() ? "" : " ", style, Escape(text));
}

std::vector<double> Numbers(const ChartPanel& panel, double ChartPoint::*member) {
  std::vector<double> numbers;
  for (const ChartCurve& curve : panel.curves) {
    for (const ChartPoint& point : curve.points) numbers.push_back(point.*member);
  }
  return numbers;
}

std::vector<double> AllX(const LineChart& chart) {
  std::vector<double> numbers;
  for (const ChartPanel& panel : chart.panels) {
    const std::vector<double> more = Numbers(panel, &ChartPoint::x);
    numbers.insert(numbers.end(), more.begin(), more.end());
  }
  for (const ChartMark& mark : chart.marks) numbers.push_back(mark.x);
  return numbers;
}

double PlaceX(const ChartAxis& axis, double x) { return kPlotLeft + kPlotWidth * axis.Place(x); }

std::string Polyline(const ChartCurve& curve, const ChartAxis& x_axis, const ChartAxis& y_axis,
                     double bottom) {
  std::string points;
  for (const ChartPoint& point : curve.points) {
    if (!points.empty()) points += ' ';
    points +=
        Pixel(PlaceX(x_axis, point.x)) + ',' + Pixel(bottom - kPlotHeight * y_axis.Place(point.y));
  }
  return fmt::format("<polyline points=\"{}\" {}/>\n", points, StrokeOf(curve.series));
}

std::string PanelSvg(const LineChart& chart, const ChartPanel& panel, const ChartAxis& x_axis,
                     double top) {
  constexpr std::string_view kGrid = "stroke=\"#e4e4e4\"";
  constexpr std::string_view kFrame = "stroke=\"#808080\"";
  const ChartAxis y_axis(panel.scale, Numbers(panel, &ChartPoint::y));
  const double bottom = top + kPlotHeight;
  const double right = kPlotLeft + kPlotWidth;
  std::string out = Text(kPlotLeft, top - 8, panel.title, "font-weight=\"bold\"");
  for (const Tick& tick : y_axis.ticks()) {
    const double y = bottom - kPlotHeight * y_axis.Place(tick.value);
    out += Line(kPlotLeft, y, right, y, kGrid);
    out += Text(kPlotLeft - 6, y + 4, tick.label, "text-anchor=\"end\"");
  }
  for (const Tick& tick : x_axis.ticks()) {
    const double x = PlaceX(x_axis, tick.value);
    out += Line(x, bottom, x, bottom + 4, kFrame);
    out += Text(x, bottom + 16, tick.label, "text-anchor=\"middle\"");
  }
  for (const ChartMark& mark : chart.marks) {
    const double x = PlaceX(x_axis, mark.x);
    out += Line(x, top, x, bottom, "stroke=\"#808080\" stroke-dasharray=\"2 3\"");
    out += Text(x - 4, top + 12, mark.label, "text-anchor=\"end\" fill=\"#606060\"");
  }
  out += Line(kPlotLeft, bottom, right, bottom, kFrame);
  out += Line(kPlotLeft, top, kPlotLeft, bottom, kFrame);
  out += "<g fill=\"none\" stroke-linejoin=\"round\">\n";
  for (const ChartCurve& curve : panel.curves) {
    CKPT_CHECK(curve.series < chart.series.size());
    if (!curve.points.empty()) out += Polyline(curve, x_axis, y_axis, bottom);
  }
  return out + "</g>\n";
}

std::string LegendSvg(const LineChart& chart) {
  std::string out;
  double y = kTop + 8;
  for (std::size_t series = 0; series < chart.series.size(); ++series) {
    out += Line(kLegendLeft, y, kLegendLeft + 26, y, StrokeOf(series));
    out += Text(kLegendLeft + 32, y + 4, chart.series[series]);
    y += kLegendPitch;
  }
  return out;
}

}  // namespace

std::string ChartSvg(const LineChart& chart) {
  const double height = kTop + kPanelPitch * static_cast<double>(chart.panels.size()) -
                        (kPanelPitch - kPlotHeight) + kBelow + 16;
  const ChartAxis x_axis(Scale::kLinear, AllX(chart), /*tight=*/true);
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#202020\">\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n",
      Pixel(kWidth), Pixel(height));
  out += Text(kPlotLeft, 26, chart.title, "font-size=\"15\"");
  double top = kTop;
  for (const ChartPanel& panel : chart.panels) {
    out += PanelSvg(chart, panel, x_axis, top);
    top += kPanelPitch;
  }
  out += Text(kPlotLeft + kPlotWidth, height - 6, chart.x_label, "text-anchor=\"end\"");
  out += LegendSvg(chart);
  return out + "</svg>\n";
}

}  // namespace ckpt::train

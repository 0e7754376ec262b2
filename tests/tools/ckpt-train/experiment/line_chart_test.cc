#include "tools/ckpt-train/experiment/internal/line_chart.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ckpt::train {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

LineChart TwoCurves() {
  return {.title = "a & b",
          .x_label = "step",
          .series = {"reference", "(a) <same>"},
          .marks = {{5, "saved"}},
          .panels = {{.title = "loss",
                      .scale = Scale::kLinear,
                      .curves = {{0, {{0, 0}, {10, 10}}}, {1, {{0, 10}, {10, 0}}}}}}};
}

TEST(LineChartTest, DrawsEveryPointWhereTheAxesSay) {
  const std::string svg = ChartSvg(TwoCurves());
  EXPECT_THAT(svg, StartsWith("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_THAT(svg, EndsWith("</svg>\n"));
  // From the lower left corner of the plot to its upper right one, and the other way round.
  EXPECT_THAT(svg, HasSubstr("<polyline points=\"64,276 724,66\""));
  EXPECT_THAT(svg, HasSubstr("<polyline points=\"64,66 724,276\""));
}

TEST(LineChartTest, EscapesTexts) {
  const std::string svg = ChartSvg(TwoCurves());
  EXPECT_THAT(svg, HasSubstr(">a &amp; b<"));
  EXPECT_THAT(svg, HasSubstr(">(a) &lt;same><"));
  EXPECT_THAT(svg, HasSubstr(">saved<"));
  EXPECT_THAT(svg, HasSubstr(">step<"));
}

TEST(LineChartTest, SeriesThatShareAColourDifferInDashes) {
  LineChart chart = TwoCurves();
  for (int i = 0; i < 8; ++i) chart.series.push_back("another");
  const std::string svg = ChartSvg(chart);
  EXPECT_THAT(svg, HasSubstr("stroke=\"#0072b2\" stroke-width=\"1.5\"/>"));
  EXPECT_THAT(svg, HasSubstr("stroke=\"#0072b2\" stroke-width=\"1.5\" stroke-dasharray"));
}

TEST(LineChartTest, EmptyCurvesAndNoPanelsAreFine) {
  LineChart chart = TwoCurves();
  chart.panels[0].curves = {{1, {}}};
  EXPECT_THAT(ChartSvg(chart), Not(HasSubstr("<polyline")));
  chart.panels.clear();
  EXPECT_THAT(ChartSvg(chart), EndsWith("</svg>\n"));
}

}  // namespace
}  // namespace ckpt::train

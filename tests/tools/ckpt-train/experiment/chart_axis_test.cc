#include "tools/ckpt-train/experiment/internal/chart_axis.h"

#include <cmath>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ckpt::train {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;

std::vector<std::string> Labels(const ChartAxis& axis) {
  std::vector<std::string> labels;
  for (const Tick& tick : axis.ticks()) labels.push_back(tick.label);
  return labels;
}

TEST(ChartAxisTest, EndsAtRoundNumbersAroundTheValues) {
  const ChartAxis axis(Scale::kLinear, std::vector<double>{0.37, 5.58});
  EXPECT_THAT(Labels(axis), ElementsAre("0", "1", "2", "3", "4", "5", "6"));
  EXPECT_EQ(axis.Place(0), 0);
  EXPECT_EQ(axis.Place(6), 1);
}

TEST(ChartAxisTest, TightEndsWhereTheValuesDo) {
  const ChartAxis axis(Scale::kLinear, std::vector<double>{1, 200}, /*tight=*/true);
  EXPECT_EQ(axis.Place(1), 0);
  EXPECT_EQ(axis.Place(200), 1);
  EXPECT_THAT(Labels(axis), ElementsAre("50", "100", "150", "200"));
}

TEST(ChartAxisTest, StepsOfTenthsDoNotDrift) {
  const ChartAxis axis(Scale::kLinear, std::vector<double>{0.1, 0.62});
  EXPECT_THAT(Labels(axis), ElementsAre("0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7"));
}

TEST(ChartAxisTest, OneValueOrNoneHasAPlace) {
  const ChartAxis one(Scale::kLinear, std::vector<double>{3});
  EXPECT_THAT(one.Place(3), DoubleNear(0.5, 1e-12));
  const ChartAxis none(Scale::kLinear, {});
  EXPECT_FALSE(none.ticks().empty());
  const ChartAxis no_logarithms(Scale::kLog, {});
  EXPECT_FALSE(no_logarithms.ticks().empty());
}

TEST(ChartAxisTest, DecadesAreEquallyFar) {
  const ChartAxis axis(Scale::kLog, std::vector<double>{2e-8, 3e-6});
  EXPECT_THAT(Labels(axis), ElementsAre("1e-8", "1e-7", "1e-6", "1e-5"));
  EXPECT_THAT(axis.Place(1e-7), DoubleNear(1.0 / 3, 1e-12));
  EXPECT_THAT(axis.Place(std::sqrt(10) * 1e-7), DoubleNear(0.5, 1e-12));
}

TEST(ChartAxisTest, ZerosLieBelowTheSmallestDecade) {
  const ChartAxis axis(Scale::kLog, std::vector<double>{0, 1e-8, 1e-7});
  EXPECT_THAT(Labels(axis), ElementsAre("0", "1e-8", "1e-7"));
  EXPECT_EQ(axis.Place(0), 0);
  EXPECT_THAT(axis.Place(1e-8), DoubleNear(0.5, 1e-12));
}

TEST(ChartAxisTest, ManyDecadesAreNotAllWritten) {
  const ChartAxis axis(Scale::kLog, std::vector<double>{1e-16, 1});
  EXPECT_LE(axis.ticks().size(), 9U);
  EXPECT_EQ(axis.Place(1), 1);
}

}  // namespace
}  // namespace ckpt::train

#include "tests/trainer/ops/finite_difference.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace ckpt::trainer {
namespace {

// f(x) = Σ sin(i + x_i) · exp(x_i / 2), and its gradient by hand.
struct Example {
  std::vector<double> x = {0.3, -1.2, 0.7, 2.1, -0.4};

  [[nodiscard]] double Value() const {
    double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i)
      sum += std::sin(double(i) + x[i]) * std::exp(x[i] / 2);
    return sum;
  }
  [[nodiscard]] std::vector<double> Gradient() const {
    std::vector<double> gradient;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double at = double(i) + x[i];
      gradient.push_back((std::cos(at) + std::sin(at) / 2) * std::exp(x[i] / 2));
    }
    return gradient;
  }
};

TEST(FiniteDifferenceTest, AcceptsTheGradient) {
  Example f;
  EXPECT_TRUE(IsGradientOf(f.Gradient(), f.x, [&] { return f.Value(); }));
}

TEST(FiniteDifferenceTest, FindsARelativeErrorOfOneInTenThousandInAnyElement) {
  Example f;
  for (std::size_t i = 0; i < f.x.size(); ++i) {
    for (const double factor : {1 + 1e-4, 1 - 1e-4}) {
      std::vector<double> gradient = f.Gradient();
      gradient[i] *= factor;
      EXPECT_FALSE(IsGradientOf(gradient, f.x, [&] { return f.Value(); })) << i;
    }
  }
}

TEST(FiniteDifferenceTest, RefusesNaNAndAGradientThatIsZeroEverywhere) {
  Example f;
  std::vector<double> gradient = f.Gradient();
  gradient[2] = std::nan("");
  EXPECT_FALSE(IsGradientOf(gradient, f.x, [&] { return f.Value(); }));
  EXPECT_FALSE(IsGradientOf(std::vector<double>(f.x.size()), f.x, [&] { return f.Value(); }));
}

}  // namespace
}  // namespace ckpt::trainer

// Derivatives by central differences, to hold a hand-written backward against.
#ifndef CKPT_TESTS_TRAINER_OPS_FINITE_DIFFERENCE_H_
#define CKPT_TESTS_TRAINER_OPS_FINITE_DIFFERENCE_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <vector>

#include <gtest/gtest.h>

namespace ckpt::trainer {

// The derivative of `value` by x[i]; `value` reads `x`, which is as before afterwards. Two central
// differences, extrapolated: the error is of the fourth order of the step, about 1e-11 of the
// values themselves.
inline double CentralDifference(std::vector<double>& x, std::size_t i,
                                const std::function<double()>& value) {
  const double at = x[i];
  const auto difference = [&](double step) {
    x[i] = at + step;
    const double above = value();
    x[i] = at - step;
    const double below = value();
    x[i] = at;
    return (above - below) / (2 * step);
  };
  constexpr double kStep = 1e-3;
  return (4 * difference(kStep / 2) - difference(kStep)) / 3;
}

// Whether every element of `gradient` is the derivative of `value` by that element of `x`, to 1e-6
// of itself and 1e-9 of the largest: a relative error of 1e-4 in any but the smallest is found.
//
// REQUIRES: everything is computed in double precision; `value` is smooth where it is looked at.
inline ::testing::AssertionResult IsGradientOf(const std::vector<double>& gradient,
                                               std::vector<double>& x,
                                               const std::function<double()>& value) {
  if (gradient.size() != x.size()) {
    return ::testing::AssertionFailure() << gradient.size() << " elements for " << x.size();
  }
  double largest = 0;
  for (const double g : gradient) {
    if (!std::isfinite(g)) return ::testing::AssertionFailure() << "a gradient is " << g;
    largest = std::max(largest, std::abs(g));
  }
  if (largest == 0 && !x.empty()) {
    return ::testing::AssertionFailure() << "every gradient is 0: nothing is tested";
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double want = CentralDifference(x, i, value);
    if (!(std::abs(gradient[i] - want) <= 1e-6 * std::abs(want) + 1e-9 * largest)) {
      return ::testing::AssertionFailure()
             << "element " << i << ": gradient " << gradient[i] << ", difference quotient " << want;
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace ckpt::trainer

#endif  // CKPT_TESTS_TRAINER_OPS_FINITE_DIFFERENCE_H_

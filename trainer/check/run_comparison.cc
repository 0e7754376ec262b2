#include "trainer/check/run_comparison.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/base/check.h"

namespace ckpt::train {
namespace {

constexpr double kRoundedTwice = 3;

std::vector<double> LogitsOf(const Computed& computed) {
  std::vector<double> logits;
  for (auto row = computed.logits.begin(); row != computed.logits.end();
       row += computed.row_elems) {
    logits.insert(logits.end(), row, row + computed.vocab_size);
  }
  return logits;
}

std::vector<double> ValuesOf(const MemoryTensor& gradient) {
  CKPT_CHECK(gradient.dtype == DType::kFloat32);
  std::vector<float> floats(gradient.values.size() / sizeof(float));
  if (!floats.empty()) std::memcpy(floats.data(), gradient.values.data(), gradient.values.size());
  return {floats.begin(), floats.end()};
}

Deviation LogitsDeviation(const Computed& expected, const Computed& actual) {
  return Measure(LogitsOf(expected), LogitsOf(actual));
}

double LargestOf(const Comparison& comparison) {
  double largest = 0;
  for (const auto& [name, error] : comparison.gradients) largest = std::max(largest, error);
  return largest;
}

}  // namespace

Comparison CompareRuns(const Computed& expected, const Computed& actual) {
  CKPT_CHECK(!expected.logits.empty() && expected.logits.size() == actual.logits.size());
  CKPT_CHECK(expected.gradients.size() == actual.gradients.size());
  Comparison comparison;
  comparison.loss = {.expected = expected.loss,
                     .actual = actual.loss,
                     .error = Measure({&expected.loss, 1}, {&actual.loss, 1}).Relative()};
  comparison.logits = LogitsDeviation(expected, actual).Relative();
  std::vector<Deviation> deviations;
  double largest = 0;
  for (std::size_t g = 0; g < expected.gradients.size(); ++g) {
    CKPT_CHECK(expected.gradients[g].key == actual.gradients[g].key);
    deviations.push_back(Measure(ValuesOf(expected.gradients[g]), ValuesOf(actual.gradients[g])));
    largest = std::max(largest, deviations.back().magnitude);
  }
  for (std::size_t g = 0; g < deviations.size(); ++g) {
    comparison.gradients.emplace_back(expected.gradients[g].key,
                                      deviations[g].RelativeInGradients(largest));
  }
  return comparison;
}

bool ErrorBounds::Hold(const Comparison& errors) const {
  return errors.loss->error <= loss && *errors.logits <= logits && LargestOf(errors) <= gradients;
}

ErrorBounds BoundsOfRounding(const Computed& exact, const Computed& rounded) {
  const Deviation of_logits = LogitsDeviation(exact, rounded);
  // The loss of a token is the difference of two numbers,
  // each moved by no more than the logits are.
  return {.loss = kRoundedTwice * 2 * of_logits.difference / std::abs(exact.loss),
          .logits = kRoundedTwice * of_logits.Relative(),
          .gradients = kRoundedTwice * LargestOf(CompareRuns(exact, rounded))};
}

}  // namespace ckpt::train

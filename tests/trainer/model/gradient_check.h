// Gradients against finite differences of the whole loss.
#ifndef CKPT_TESTS_TRAINER_MODEL_GRADIENT_CHECK_H_
#define CKPT_TESTS_TRAINER_MODEL_GRADIENT_CHECK_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tests/trainer/model/model_runner.h"

namespace ckpt::testing {

struct GradientError {
  std::string parameter;
  double relative = 0;  // to the norm of the parameter's gradient
};

// The largest error over all parameters. Each gradient is compared along `num_directions` random
// directions, into which every element enters.
inline GradientError WorstGradientError(ModelRunner& runner, std::uint64_t seed,
                                        int num_directions = 2) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  const auto gradients = runner.Step().gradients;
  GradientError worst;
  for (const auto& named : gradients) {
    const std::string& name = named.first;
    const std::vector<double>& gradient = named.second;
    const std::vector<double> weight = runner.params().ReadWeight(name);
    for (int i = 0; i < num_directions; ++i) {
      std::vector<double> direction(weight.size());
      double norm = 0;
      for (double& component : direction) {
        component = normal(random);
        norm += component * component;
      }
      norm = std::sqrt(norm);
      const auto at = [&](double distance) {
        std::vector<double> moved = weight;
        for (std::size_t e = 0; e < moved.size(); ++e) {
          moved[e] += distance * direction[e] / norm;
        }
        runner.params().WriteWeight(name, moved);
        return runner.Objective();
      };
      // Five points: the error is of fourth order in the distance. Short enough that no token
      // changes its experts.
      constexpr double kStep = 1e-4;
      const double slope =
          (8 * (at(kStep) - at(-kStep)) - (at(2 * kStep) - at(-2 * kStep))) / (12 * kStep);
      double expected = 0;
      double gradient_norm = 0;
      for (std::size_t e = 0; e < gradient.size(); ++e) {
        expected += gradient[e] * direction[e] / norm;
        gradient_norm += gradient[e] * gradient[e];
      }
      // A random direction meets 1/√elements of the gradient's length.
      const double scale = std::sqrt(gradient_norm / static_cast<double>(gradient.size()));
      const double error = std::abs(slope - expected) / std::max(scale, 1e-9);
      if (!(error <= worst.relative)) worst = {.parameter = name, .relative = error};
    }
    runner.params().WriteWeight(name, weight);
  }
  return worst;
}

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_TRAINER_MODEL_GRADIENT_CHECK_H_

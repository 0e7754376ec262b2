// What tests of mixtures of experts share: a small model, runs of it, and how far results differ.
#ifndef CKPT_TESTS_TRAINER_MODEL_SMALL_MOE_H_
#define CKPT_TESTS_TRAINER_MODEL_SMALL_MOE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "tests/testing/matchers.h"
#include "tests/testing/test_seed.h"
#include "tests/trainer/model/dispatchers.h"
#include "tests/trainer/model/max_abs.h"
#include "tests/trainer/model/moe_runner.h"

namespace ckpt::testing {

inline constexpr std::uint64_t kSmallMoeSeed = 11;
inline constexpr std::int64_t kSmallMoeExperts = 8;

inline trainer::ModelConfig SmallMoe(const trainer::RouterForm& router = {.topk = 3,
                                                                          .normalize = true}) {
  trainer::ModelConfig config;
  config.num_layers = 2;
  config.hidden_size = 10;
  trainer::MoeConfig moe;
  moe.num_experts = kSmallMoeExperts;
  moe.ffn_hidden_size = 6;
  moe.router = router;
  config.moe = moe;
  return config;
}

inline std::vector<double> BiasTowards(std::size_t expert) {
  std::vector<double> bias(static_cast<std::size_t>(kSmallMoeExperts));
  bias[expert] = 100;
  return bias;
}

inline MoeValues RunOk(const trainer::ModelConfig& config, const std::vector<MoeBatch>& batches,
                       const MoeOptions& options) {
  Result<MoeValues> values = RunMoe(config, batches, TestSeed(kSmallMoeSeed), options);
  EXPECT_THAT(values, IsOk());
  return values.ok() ? std::move(*values) : MoeValues();
}

// Largest difference over the largest magnitude; infinite if anything is NaN or sizes differ.
inline double Difference(const std::vector<double>& have, const std::vector<double>& want) {
  if (have.size() != want.size()) return std::numeric_limits<double>::infinity();
  double max = 0;
  for (std::size_t i = 0; i < have.size(); ++i) {
    const double difference = std::abs(have[i] - want[i]);
    if (!(difference <= max)) max = difference;
    if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
  }
  return max == 0 ? 0 : max / std::max(MaxAbs(want), 1e-9);
}

inline double Difference(const MoeValues& have, const MoeValues& want) {
  double worst = have.gradients.size() == want.gradients.size()
                     ? Difference(have.aux_losses, want.aux_losses)
                     : std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < want.y.size(); ++i) {
    worst = std::max({worst, Difference(have.y[i], want.y[i]), Difference(have.dx[i], want.dx[i])});
  }
  for (const auto& [name, gradient] : want.gradients) {
    worst = std::max(worst, Difference(have.gradients.at(name), gradient));
  }
  return worst;
}

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_TRAINER_MODEL_SMALL_MOE_H_

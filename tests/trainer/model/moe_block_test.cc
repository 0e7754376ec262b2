// One block of experts: what its gradients, its ranks and its parameters are.
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/matchers.h"
#include "tests/testing/test_seed.h"
#include "tests/trainer/model/moe_runner.h"
#include "tests/trainer/model/small_moe.h"
#include "trainer/model/moe.h"

namespace ckpt::testing {
namespace {

using trainer::AuxLoss;
using trainer::ModelConfig;

TEST(MoeBlockTest, ScalesTheGradientOfTheAuxiliaryLosses) {
  ModelConfig config = SmallMoe();
  config.moe->aux = {.kind = AuxLoss::kBatch, .coefficient = 0.5, .z_coefficient = 0.1};
  std::vector<MoeBatch> batches = RandomMoeBatches(config, testing::TestSeed(kSmallMoeSeed), 1);
  const auto gradient_at = [&](double scale) {
    return RunOk(config, batches, {.aux_scale = scale}).gradients.at("mlp.router.weight");
  };
  const std::vector<double> none = gradient_at(0);
  const std::vector<double> one = gradient_at(1);
  std::vector<double> extrapolated;
  for (std::size_t i = 0; i < one.size(); ++i) extrapolated.push_back(4 * one[i] - 3 * none[i]);
  EXPECT_LT(Difference(gradient_at(4), extrapolated), 1e-13);
  EXPECT_GT(Difference(one, none), 1e-3);
}

// As many tokens on every rank, but more or less of them padding; one rank has nothing else.
TEST(MoeBlockTest, RanksMayHaveDifferentAmountsOfPadding) {
  for (const bool pad : {false, true}) {
    ModelConfig config = SmallMoe();
    config.moe->aux = {.kind = AuxLoss::kSequence, .coefficient = 0.5, .z_coefficient = 0.1};
    config.moe->shared_expert_ffn_hidden_size = 3;
    if (pad) config.moe->capacity_factor = 1;
    config.moe->pad_to_capacity = pad;
    std::vector<MoeBatch> batches =
        RandomMoeBatches(config, testing::TestSeed(kSmallMoeSeed), 4, 3, 5);
    const std::vector<std::int64_t> lengths = {5, 0, 4, 1};
    for (std::size_t i = 0; i < batches.size(); ++i) {
      for (std::int64_t t = 0; t < batches[i].tokens(); ++t) {
        batches[i].positions.push_back(t % 5 < lengths[i] ? static_cast<double>(t % 5) : -1);
      }
    }
    const MoeValues want = RunOk(config, batches, {});
    for (const int ranks : {2, 4}) {
      EXPECT_LT(Difference(RunOk(config, batches, {.ranks = ranks}), want), 1e-12) << ranks;
    }
  }
}

TEST(MoeBlockTest, PassesNoGradientToExpertsThatNobodyChose) {
  const ModelConfig config = SmallMoe({.topk = 1});
  const MoeValues values =
      RunOk(config, RandomMoeBatches(config, testing::TestSeed(kSmallMoeSeed), 2),
            {.ranks = 2, .expert_bias = BiasTowards(5)});
  for (const auto& [name, gradient] : values.gradients) {
    if (name == "mlp.router.weight") continue;
    EXPECT_EQ(MaxAbs(gradient) > 0, name.back() == '5') << name;
  }
}

// The bits are those of a router that chose the same experts.
TEST(MoeBlockTest, AssignedExpertsAreComputedAsChosenOnes) {
  ModelConfig config = SmallMoe({.topk = 1});
  config.moe->aux = {.kind = AuxLoss::kBatch, .coefficient = 0.5};
  const auto batches = RandomMoeBatches(config, testing::TestSeed(kSmallMoeSeed), 2);
  const MoeValues chosen = RunOk(config, batches, {.ranks = 2, .expert_bias = BiasTowards(5)});
  const std::vector<double> fives(static_cast<std::size_t>(batches.front().tokens()), 5);
  EXPECT_EQ(RunOk(config, batches, {.ranks = 2, .assigned_experts = fives}), chosen);
}

TEST(MoeBlockTest, AssignedExpertsAreTheSameOnAnyNumberOfRanks) {
  ModelConfig config = SmallMoe({.topk = 2, .normalize = true});
  config.moe->aux = {.kind = AuxLoss::kBatch, .coefficient = 0.5};
  const auto batches = RandomMoeBatches(config, testing::TestSeed(kSmallMoeSeed), 4, 2, 4);
  const std::vector<double> table = {3, 1, 7, 0, 5, 2, 6, 4, 0, 4, 2, 6, 1, 7, 3, 5};
  const MoeValues want = RunOk(config, batches, {.assigned_experts = table});
  EXPECT_THAT(want.counts, ::testing::Each(8));
  for (const trainer::Dispatcher dispatcher : testing::AllDispatchers()) {
    for (const bool recompute : {false, true}) {
      const MoeValues values = RunOk(config, batches,
                                     {.ranks = 4,
                                      .dispatcher = dispatcher,
                                      .recompute = recompute,
                                      .assigned_experts = table});
      EXPECT_LT(Difference(values, want), 1e-12);
      EXPECT_EQ(values.counts, want.counts);
    }
  }
}

TEST(MoeBlockTest, ListsTheExpertsOfItsRank) {
  ModelConfig config = SmallMoe();
  config.moe->shared_expert_ffn_hidden_size = 4;
  EXPECT_THAT(
      trainer::RunRanks(
          4,
          [&](trainer::HostGroup& group) {
            testing::RankDevice device;
            const auto experts = device.CollectivesOf(group);
            const trainer::MoeBlock block(config, "mlp.", {.expert_group = experts.get()}, {}, {});
            std::vector<std::string> names;
            for (const trainer::ParamSpec& param : block.Params()) {
              names.push_back(param.name + " " + FormatDims(param.shape) +
                              (param.param_class == trainer::ParamClass::kExpert ? " expert" : ""));
            }
            const std::string first = std::to_string(2 * group.rank());
            const std::string second = std::to_string(2 * group.rank() + 1);
            EXPECT_THAT(names, ::testing::ElementsAre(
                                   "mlp.router.weight [8, 10]",
                                   "mlp.shared_experts.linear_fc1.weight [8, 10]",
                                   "mlp.shared_experts.linear_fc2.weight [10, 4]",
                                   "mlp.experts.linear_fc1.weight" + first + " [12, 10] expert",
                                   "mlp.experts.linear_fc1.weight" + second + " [12, 10] expert",
                                   "mlp.experts.linear_fc2.weight" + first + " [10, 6] expert",
                                   "mlp.experts.linear_fc2.weight" + second + " [10, 6] expert"));
            return OkStatus();
          }),
      IsOk());
}

}  // namespace
}  // namespace ckpt::testing

#include "trainer/bench/bench_model.h"

#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/matchers.h"
#include "trainer/bench/internal/counter_random.h"
#include "trainer/model/flops.h"
#include "trainer/model/model.h"

namespace ckpt::train {
namespace {

using ::testing::ElementsAre;
using testing::IsOk;

trainer::ModelConfig ConfigOf(std::string_view model) {
  layout::Configuration settings = *BenchSettings(model);
  for (const char* name : {"lr", "lr_decay_style", "adam_beta2", "weight_decay", "clip_grad"}) {
    settings.erase(name);
  }
  Result<trainer::ModelConfig> config = trainer::ParseModelConfig(settings);
  EXPECT_THAT(config, IsOk());
  return *config;
}

TEST(CounterRandomTest, GivesTheNumbersOfThePythonProgram) {
  const CounterRandom tokens(1234, "tokens");
  EXPECT_THAT((std::vector{tokens.Bits(0), tokens.Bits(1), tokens.Bits(1000000007)}),
              ElementsAre(455873580U, 1836130738U, 1166298569U));
  const CounterRandom weights(1234, "blocks.3.qkv.weight");
  EXPECT_THAT((std::vector{weights.Bits(0), weights.Bits(1), weights.Bits(1000000007)}),
              ElementsAre(642234555U, 738146767U, 489145680U));
}

// The figures of the other trainer's README, in GFLOP a token at 4096.
TEST(FlopsTest, AreThoseOfTheBenchmark) {
  for (const auto& [model, gflops] :
       {std::pair{"d1", 4.99}, {"d2", 11.73}, {"m1", 4.59}, {"m2", 7.88}, {"m3", 23.08}}) {
    EXPECT_NEAR(trainer::TrainingFlopsPerToken(ConfigOf(model), 4096) / 1e9, gflops, 0.005)
        << model;
  }
}

TEST(FlopsTest, AWindowAndLatentHeadsCountWhatTheyCompute) {
  trainer::ModelConfig config = ConfigOf("tiny");
  const double full = trainer::TrainingFlopsPerToken(config, 1024);
  config.window_size = {256, 0};
  // A layer of 4 heads of 128 dims: a query sees 256 - 256²/2048 = 224 keys in place of 512.
  EXPECT_NEAR(full - trainer::TrainingFlopsPerToken(config, 1024), 6.0 * (512 - 224) * 4 * 256, 1);
}

// Every parameter of every model has its place, and all are told apart.
TEST(BenchWeightsTest, EveryParameterHasWeights) {
  for (const char* model : {"tiny", "tiny-moe"}) {
    const trainer::ModelConfig config = ConfigOf(model);
    std::set<float> firsts;
    int matrices = 0;
    for (const trainer::UnitSpec& unit : trainer::ListUnits(config, 0, 1)) {
      for (const trainer::ParamSpec& spec : unit.params) {
        std::vector<float> row(static_cast<std::size_t>(NumElements(spec.shape) / spec.shape[0]));
        ASSERT_THAT(FillBenchWeights(config, 1234, spec, 0, 1, row), IsOk()) << spec.name;
        if (spec.shape.size() == 1) {
          EXPECT_EQ(row[0], 1) << spec.name;
          continue;
        }
        ++matrices;
        EXPECT_LE(std::abs(row[0]), 0.02 * std::sqrt(3.0) + 1e-6);
        firsts.insert(row[0]);
      }
    }
    EXPECT_EQ(firsts.size(), static_cast<std::size_t>(matrices)) << model;
  }
}

TEST(BenchWeightsTest, QueriesKeysAndValuesComeFromTheirPlaces) {
  const trainer::ModelConfig config = ConfigOf("tiny");  // 4 query heads, 2 key/value heads
  const trainer::ParamSpec spec = {.name = "decoder.layers.1.self_attention.linear_qkv.weight",
                                   .shape = {8 * 128, 256}};
  const CounterRandom random(7, "blocks.1.qkv.weight");
  const auto first_of_row = [&](std::int64_t row) {
    std::vector<float> values(256);
    EXPECT_THAT(FillBenchWeights(config, 7, spec, row, 1, values), IsOk());
    return values[0];
  };
  // Ours: for each key/value head two query heads, a key, a value. Theirs: 4 queries, 2 keys, 2
  // values.
  const std::vector<std::int64_t> theirs = {0, 1, 4, 6, 2, 3, 5, 7};
  for (std::size_t head = 0; head < theirs.size(); ++head) {
    const auto row = static_cast<std::int64_t>(head) * 128 + 5;
    EXPECT_EQ(first_of_row(row),
              random.Weight(static_cast<std::uint64_t>((theirs[head] * 128 + 5) * 256)));
  }
}

TEST(BenchWeightsTest, ExpertsArePartsOfOneTensor) {
  const trainer::ModelConfig config = ConfigOf("tiny-moe");
  const trainer::ParamSpec spec = {.name = "decoder.layers.0.mlp.experts.linear_fc2.weight3",
                                   .shape = {256, 128}};
  std::vector<float> values(2 * 128);
  ASSERT_THAT(FillBenchWeights(config, 1, spec, 10, 2, values), IsOk());
  const CounterRandom random(1, "blocks.0.experts.down");
  EXPECT_EQ(values[130], random.Weight((3 * 256 + 11) * 128 + 2));
}

TEST(BenchWeightsTest, RefusesAParameterThatTheOtherModelLacks) {
  const trainer::ParamSpec spec = {.name = "decoder.layers.0.mlp.extra.weight", .shape = {2, 2}};
  std::vector<float> values(2);
  EXPECT_THAT(FillBenchWeights(ConfigOf("tiny"), 1, spec, 0, 1, values),
              testing::FailsWith(ErrorKind::kUnsupported));
}

TEST(BenchTokensTest, RanksTakeTurnsInOneTable) {
  const BenchTokens alone = {.seed = 5, .vocab_size = 100, .seq = 7, .rows_of_rank = 4};
  BenchTokens shared = alone;
  shared.rows_of_rank = 2;
  shared.num_ranks = 2;
  const trainer::HostMicroBatch whole = alone.At(3, 0);
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> labels;
  for (int rank = 0; rank < 2; ++rank) {
    const trainer::HostMicroBatch part = shared.At(3, rank);
    tokens.insert(tokens.end(), part.tokens.begin(), part.tokens.end());
    labels.insert(labels.end(), part.labels.begin(), part.labels.end());
  }
  EXPECT_EQ(tokens, whole.tokens);
  EXPECT_EQ(labels, whole.labels);
  EXPECT_EQ(whole.labels[0], whole.tokens[1]);
}

// The other trainer's table for seed 1234, 8 tokens, 16 experts and 4 of them a token.
TEST(BalancedExpertsTest, IsTheTableOfThePythonProgram) {
  const Result<std::vector<std::int32_t>> experts = BalancedExperts(1234, 8, 16, 4);
  ASSERT_THAT(experts, IsOk());
  EXPECT_THAT(*experts, ElementsAre(2, 9, 11, 5, 3, 1, 8, 0, 7, 12, 13, 4, 15, 10, 14, 6,  //
                                    12, 11, 5, 8, 3, 15, 2, 13, 4, 0, 7, 6, 14, 1, 10, 9));
}

TEST(BalancedExpertsTest, EveryExpertServesTheSameNumberOfTokens) {
  const Result<std::vector<std::int32_t>> experts = BalancedExperts(7, 256, 64, 8);
  ASSERT_THAT(experts, IsOk());
  std::vector<int> counts(64);
  for (const std::int32_t expert : *experts) ++counts.at(static_cast<std::size_t>(expert));
  EXPECT_THAT(counts, ::testing::Each(256 * 8 / 64));
  for (std::size_t token = 0; token < 256; ++token) {
    const auto first = experts->begin() + static_cast<std::ptrdiff_t>(token * 8);
    EXPECT_EQ(std::set<std::int32_t>(first, first + 8).size(), 8U) << token;
  }
}

TEST(BalancedExpertsTest, RefusesTokensThatCannotBeSharedEvenly) {
  EXPECT_THAT(BalancedExperts(1, 7, 16, 4), testing::FailsWith(ErrorKind::kUsage));
  EXPECT_THAT(BalancedExperts(1, 16, 16, 3), testing::FailsWith(ErrorKind::kUsage));
}

}  // namespace
}  // namespace ckpt::train

// Examples that share a sequence: their losses and gradients are those of the same examples alone.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/matchers.h"
#include "tests/trainer/model/model_runner.h"
#include "tests/trainer/model/tiny_models.h"

namespace ckpt::testing {
namespace {

constexpr std::uint64_t kPackedSeed = 7;
constexpr std::int64_t kSeq = 16;

struct PackedBatch {
  TokenBatch packed;
  std::vector<TokenBatch> examples;  // each alone, in order
  std::vector<std::size_t> begins;   // of each in `packed`
};

// Sequences of kSeq tokens; of each the lengths of its examples, padding behind them.
PackedBatch Pack(const std::vector<std::vector<std::int64_t>>& sequences, std::int64_t vocab) {
  PackedBatch batch;
  TokenBatch& packed = batch.packed;
  packed.batch = static_cast<std::int64_t>(sequences.size());
  packed.seq = kSeq;
  for (const std::vector<std::int64_t>& lengths : sequences) {
    for (const std::int64_t length : lengths) {
      TokenBatch example = RandomBatch(kPackedSeed + batch.examples.size(), vocab, 1, length);
      example.labels.back() = 1;  // at least one counts
      batch.begins.push_back(packed.tokens.size());
      packed.cu_seqlens.push_back(static_cast<double>(packed.tokens.size()));
      packed.lengths.push_back(static_cast<double>(length));
      packed.tokens.insert(packed.tokens.end(), example.tokens.begin(), example.tokens.end());
      packed.labels.insert(packed.labels.end(), example.labels.begin(), example.labels.end());
      for (std::int64_t i = 0; i < length; ++i) packed.positions.push_back(static_cast<double>(i));
      batch.examples.push_back(std::move(example));
    }
    const auto end = static_cast<std::size_t>(kSeq) * (packed.tokens.size() / kSeq) +
                     (packed.tokens.size() % kSeq == 0 ? 0 : kSeq);
    packed.tokens.resize(end, 3);
    packed.labels.resize(end, -1);
    packed.positions.resize(end, -1);
  }
  packed.cu_seqlens.push_back(static_cast<double>(packed.tokens.size()));
  return batch;
}

// Odd lengths, lengths of one, padding of every kind: none, one token, and most of a sequence.
PackedBatch SomePacks(std::int64_t vocab) {
  return Pack({{5, 1, 3, 7}, {1, 14}, {16}, {2}}, vocab);
}

std::unique_ptr<ModelRunner> MakeRunner(const trainer::ModelConfig& config, const TokenBatch& batch,
                                        const RunnerOptions& options) {
  auto runner = std::make_unique<ModelRunner>(config, batch, options);
  FillFromSeed(kPackedSeed, runner->params());
  return runner;
}

// A mixture balances, and drops tokens of, a micro-batch, not an example.
trainer::ModelConfig WithoutBalance(trainer::ModelConfig config) {
  if (config.moe) {
    config.moe->aux = {};
    config.moe->capacity_factor = std::nullopt;
  }
  return config;
}

class PackedModelTest : public ::testing::TestWithParam<TinyModel> {
 protected:
  const trainer::ModelConfig config_ = WithoutBalance(GetParam().config);
  const PackedBatch batch_ = SomePacks(config_.vocab_size);
};

// In one fixed order of sums: every token's loss, and the gradients of each example's loss, where
// only its own labels count.
TEST_P(PackedModelTest, AnExampleIsWhatItIsAloneBitForBit) {
  for (const DType compute : {DType::kFloat32, DType::kFloat64, DType::kBfloat16}) {
    for (const bool recompute : {false, true}) {
      const RunnerOptions options = {
          .compute = compute,
          .recompute = recompute ? trainer::Recompute::kLayers : trainer::Recompute::kNone,
          .fixed_order = true};
      for (std::size_t e = 0; e < batch_.examples.size(); ++e) {
        SCOPED_TRACE(::testing::Message()
                     << DTypeName(compute) << " recompute " << recompute << " example " << e);
        const TokenBatch& example = batch_.examples[e];
        TokenBatch packed = batch_.packed;
        packed.labels.assign(packed.labels.size(), -1);
        const auto begin = static_cast<std::ptrdiff_t>(batch_.begins[e]);
        std::ranges::copy(example.labels, packed.labels.begin() + begin);

        const StepValues want = MakeRunner(config_, example, options)->Step();
        const auto runner = MakeRunner(config_, packed, options);
        const StepValues have = runner->Step();
        std::vector<double> losses(packed.labels.size(), 0);
        std::ranges::copy(want.losses, losses.begin() + begin);
        EXPECT_EQ(have.losses, losses);
        EXPECT_EQ(have.gradients, want.gradients);
        EXPECT_EQ(runner->Evaluate(), losses);
      }
    }
  }
}

// In double, whatever the order: two sums of T products differ by T·2^-53 of the sum of their
// magnitudes at most, which here is far below a thousand times the largest gradient.
TEST_P(PackedModelTest, GradientsAddUp) {
  const StepValues have = MakeRunner(config_, batch_.packed, {})->Step();
  std::map<std::string, std::vector<double>> want;
  for (const TokenBatch& example : batch_.examples) {
    for (const auto& [name, gradient] : MakeRunner(config_, example, {})->Step().gradients) {
      std::vector<double>& sum = want[name];
      sum.resize(gradient.size());
      for (std::size_t i = 0; i < gradient.size(); ++i) sum[i] += gradient[i];
    }
  }
  double any = 0;  // an expert that no token chose has none
  for (const auto& [name, gradient] : have.gradients) {
    double largest = 0;
    double difference = 0;
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      largest = std::max(largest, std::abs(want[name][i]));
      difference = std::max(difference, std::abs(gradient[i] - want[name][i]));
    }
    EXPECT_LE(difference, 1e-11 * largest) << name;
    any = std::max(any, largest);
  }
  EXPECT_GT(any, 0);
}

// Else the two tests above would say nothing.
TEST_P(PackedModelTest, WithoutBoundsExamplesMix) {
  TokenBatch unbounded = batch_.packed;
  unbounded.cu_seqlens.clear();
  unbounded.lengths.clear();
  EXPECT_NE(MakeRunner(config_, unbounded, {})->Step().losses,
            MakeRunner(config_, batch_.packed, {})->Step().losses);
}

// Rotations are relative, so positions that count on change numbers by rounding alone.
TEST_P(PackedModelTest, AttentionAloneKeepsExamplesApart) {
  TokenBatch counting = batch_.packed;
  for (std::size_t t = 0; t < counting.positions.size(); ++t) {
    if (counting.positions[t] >= 0) counting.positions[t] = static_cast<double>(t % kSeq);
  }
  const std::vector<double> want = MakeRunner(config_, batch_.packed, {})->Step().losses;
  const std::vector<double> have = MakeRunner(config_, counting, {})->Step().losses;
  for (std::size_t t = 0; t < want.size(); ++t) EXPECT_NEAR(have[t], want[t], 1e-12) << t;
}

INSTANTIATE_TEST_SUITE_P(Tiny, PackedModelTest, ::testing::ValuesIn(AllModels()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace ckpt::testing

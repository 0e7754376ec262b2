// Training on packs: their padding changes nothing, and their examples are learned as if alone.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/testing/matchers.h"
#include "trainer/comm/thread_comm.h"
#include "trainer/device/cpu/host_device.h"
#include "trainer/ops/cpu/host_ops.h"
#include "trainer/step/parse_train_config.h"
#include "trainer/step/rank_trainer.h"

namespace ckpt::trainer {
namespace {

using testing::IsOk;

constexpr std::int32_t kVocab = 31;

Result<TrainConfig> PackedConfig(const layout::Configuration& more) {
  layout::Configuration settings = {{"num_layers", 2},
                                    {"hidden_size", 16},
                                    {"ffn_hidden_size", 24},
                                    {"vocab_size", kVocab},
                                    {"seq_length", 32},
                                    {"num_attention_heads", 4},
                                    {"num_experts", 4},
                                    {"moe_router_topk", 2},
                                    {"moe_router_score_function", "sigmoid"},
                                    {"global_batch_size", 4},
                                    {"moe_router_enable_expert_bias", true},
                                    {"moe_router_bias_update_rate", 0.01}};
  for (const auto& [name, value] : more) settings.insert_or_assign(name, value);
  SettingsReader reader(settings);
  CKPT_ASSIGN_OR_RETURN(TrainConfig config, ParseTrainConfig(reader, 2));
  ApplyReduction(config);
  return config;
}

struct Example {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> labels;
};

Example MakeExample(std::int32_t seed, std::int32_t length) {
  Example example;
  for (std::int32_t i = 0; i < length; ++i) {
    example.tokens.push_back((7 * i + 5 * seed + 3) % kVocab);
    example.labels.push_back(i % 4 == 1 ? -1 : (11 * i + seed) % kVocab);
  }
  return example;
}

// One sequence of examples, and of padding that looks like any token.
HostMicroBatch Pack(const std::vector<Example>& examples, std::int64_t padding) {
  HostMicroBatch batch = {.tokens = {}, .labels = {}, .batch = 1, .seq = 0};
  for (const Example& example : examples) {
    batch.cu_seqlens.push_back(static_cast<std::int32_t>(batch.tokens.size()));
    batch.lengths.push_back(static_cast<std::int32_t>(example.tokens.size()));
    for (std::size_t i = 0; i < example.tokens.size(); ++i) {
      batch.tokens.push_back(example.tokens[i]);
      batch.labels.push_back(example.labels[i]);
      batch.positions.push_back(static_cast<std::int32_t>(i));
    }
  }
  batch.seq = static_cast<std::int64_t>(batch.tokens.size()) + padding;
  const auto size = static_cast<std::size_t>(batch.seq);
  batch.tokens.resize(size, 9);
  batch.labels.resize(size, -1);
  batch.positions.resize(size, -1);
  batch.cu_seqlens.push_back(static_cast<std::int32_t>(size));
  return batch;
}

// Of micro-batch m of a rank.
std::vector<Example> ExamplesOf(int rank, int micro_batch) {
  const std::int32_t seed = 10 * rank + 3 * micro_batch;
  return {MakeExample(seed, 5), MakeExample(seed + 1, 1), MakeExample(seed + 2, 8 + micro_batch)};
}

struct Trained {
  std::vector<StepReport> reports;
  double evaluated = 0;
  std::map<std::string, std::vector<float>> rows;  // of all weights and buffers that rank 0 has
};

// Steps on the micro-batches that `batches` makes for a rank.
Result<Trained> TrainOn(const TrainConfig& config,
                        const std::function<std::vector<HostMicroBatch>(int rank)>& batches) {
  Trained trained;
  const auto on_rank = [&](HostGroup& world) -> Status {
    const auto device = MakeHostDevice({});
    const auto ops = MakeHostOps({.fixed_order = config.reduction == Reduction::kCanonical});
    CKPT_ASSIGN_OR_RETURN(
        const auto trainer,
        RankTrainer::Create(config, world, {.device = device.get(), .ops = ops.get()}));
    CKPT_RETURN_IF_ERROR(trainer->InitializeWeights());
    const std::vector<HostMicroBatch> mine = batches(world.rank());
    Trained of_rank;
    for (int step = 0; step < 3; ++step) {
      CKPT_ASSIGN_OR_RETURN(const StepReport report, trainer->Step(mine));
      of_rank.reports.push_back(report);
    }
    CKPT_ASSIGN_OR_RETURN(const Evaluation evaluation, trainer->Evaluate(mine));
    of_rank.evaluated = evaluation.loss;
    CKPT_RETURN_IF_ERROR(trainer->ReadWeights([&](const ParamPiece& piece) {
      std::vector<float>& rows =
          of_rank.rows[piece.spec->name + "@" + std::to_string(piece.row_begin)];
      rows.resize(static_cast<std::size_t>(piece.rows * piece.row_elems));
      return std::as_writable_bytes(std::span(rows));
    }));
    CKPT_RETURN_IF_ERROR(trainer->AwaitReads());
    if (world.rank() == 0) trained = std::move(of_rank);
    return OkStatus();
  };
  CKPT_RETURN_IF_ERROR(RunRanks(2, on_rank));
  return trained;
}

std::vector<HostMicroBatch> Padded(int rank, std::int64_t padding) {
  std::vector<HostMicroBatch> batches;
  for (int m = 0; m < 2; ++m) {
    // Another length for every micro-batch, the same for all ranks.
    batches.push_back(Pack(ExamplesOf(rank, m), padding == 0 ? 0 : padding + m));
  }
  return batches;
}

class PaddingTest : public ::testing::TestWithParam<layout::Configuration> {};

// Losses, auxiliary losses, norms, weights and expert biases, bit for bit in one order of sums.
TEST_P(PaddingTest, ChangesNothing) {
  const Result<TrainConfig> config = PackedConfig(GetParam());
  ASSERT_THAT(config, IsOk());
  const Result<Trained> want = TrainOn(*config, [](int rank) { return Padded(rank, 0); });
  ASSERT_THAT(want, IsOk());
  for (const std::int64_t padding : {1, 2, 17, 100}) {
    SCOPED_TRACE(padding);
    const Result<Trained> have = TrainOn(*config, [&](int rank) { return Padded(rank, padding); });
    ASSERT_THAT(have, IsOk());
    ASSERT_EQ(have->reports.size(), want->reports.size());
    for (std::size_t step = 0; step < want->reports.size(); ++step) {
      EXPECT_EQ(have->reports[step].loss, want->reports[step].loss) << step;
      EXPECT_EQ(have->reports[step].aux_loss, want->reports[step].aux_loss) << step;
      EXPECT_EQ(have->reports[step].grad_norm, want->reports[step].grad_norm) << step;
      EXPECT_EQ(have->reports[step].tokens, want->reports[step].tokens) << step;
    }
    EXPECT_EQ(have->evaluated, want->evaluated);
    EXPECT_EQ(have->rows, want->rows);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Runs, PaddingTest,
    ::testing::Values(layout::Configuration{{"reduction", "canonical"}},
                      layout::Configuration{{"reduction", "canonical"},
                                            {"expert_model_parallel_size", 2}},
                      layout::Configuration{{"reduction", "canonical"},
                                            {"expert_model_parallel_size", 2},
                                            {"calculate_per_token_loss", true},
                                            {"moe_router_load_balancing_type", "seq_aux_loss"},
                                            {"moe_aux_loss_coeff", 0.1},
                                            {"moe_z_loss_coeff", 0.01},
                                            {"recompute_granularity", "full"}},
                      layout::Configuration{{"reduction", "canonical"},
                                            {"expert_model_parallel_size", 2},
                                            {"moe_expert_capacity_factor", 0.75}}),
    [](const auto& test) { return "Run" + std::to_string(test.index); });

// An example is a micro-batch of its own, or a part of one: the loss over all tokens is the same,
// and so is its gradient, but for the order of sums: T tokens' float32 terms, T·2^-24 of their
// magnitudes.
TEST(PackedTrainingTest, ExamplesAreLearnedAsIfAlone) {
  const Result<TrainConfig> config = PackedConfig({{"calculate_per_token_loss", true}});
  ASSERT_THAT(config, IsOk());
  const Result<Trained> packed = TrainOn(*config, [](int rank) { return Padded(rank, 6); });
  const Result<Trained> alone = TrainOn(*config, [](int rank) {
    std::vector<HostMicroBatch> batches;
    for (int m = 0; m < 2; ++m) {
      for (const Example& example : ExamplesOf(rank, m)) batches.push_back(Pack({example}, 0));
    }
    return batches;
  });
  ASSERT_THAT(packed, IsOk());
  ASSERT_THAT(alone, IsOk());
  EXPECT_EQ(packed->reports[0].tokens, alone->reports[0].tokens);
  EXPECT_NEAR(packed->reports[0].loss, alone->reports[0].loss, 1e-6 * alone->reports[0].loss);
  EXPECT_NEAR(packed->reports[0].grad_norm, alone->reports[0].grad_norm,
              1e-5 * alone->reports[0].grad_norm);
}

}  // namespace
}  // namespace ckpt::trainer

// The loss that an evaluation finds is that of a step on the same batch, and it leaves no trace.
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

constexpr std::int64_t kSeq = 8;

Result<TrainConfig> Config(const layout::Configuration& more) {
  layout::Configuration settings = {
      {"num_layers", 2},           {"hidden_size", 16},
      {"ffn_hidden_size", 24},     {"num_attention_heads", 4},
      {"vocab_size", 31},          {"seq_length", kSeq},
      {"num_experts", 4},          {"moe_router_load_balancing_type", "aux_loss"},
      {"moe_aux_loss_coeff", 0.1}, {"global_batch_size", 4}};
  settings.insert(more.begin(), more.end());
  SettingsReader reader(settings);
  return ParseTrainConfig(reader, 2);
}

// Micro-batches with different numbers of labels: only then the mean over tokens is not the mean of
// means.
std::vector<HostMicroBatch> Batches(int rank) {
  std::vector<HostMicroBatch> batches;
  for (int m = 0; m < 2; ++m) {
    HostMicroBatch batch = {.tokens = {}, .labels = {}, .batch = 1, .seq = kSeq};
    for (int i = 0; i < kSeq; ++i) {
      batch.tokens.push_back((7 * i + 3 * m + 5 * rank) % 31);
      batch.labels.push_back(i <= 3 * m + rank ? (11 * i + m) % 31 : -1);
    }
    batches.push_back(std::move(batch));
  }
  return batches;
}

struct Seen {
  Evaluation evaluation;
  StepReport report;
  double second_loss = 0;  // of the step after
};

Result<Seen> TrainTwoSteps(const TrainConfig& config, bool evaluates) {
  Seen seen;
  const auto on_rank = [&](HostGroup& world) -> Status {
    const auto device = MakeHostDevice({});
    const auto ops = MakeHostOps({.threads = 1});
    CKPT_ASSIGN_OR_RETURN(
        const auto trainer,
        RankTrainer::Create(config, world, {.device = device.get(), .ops = ops.get()}));
    CKPT_RETURN_IF_ERROR(trainer->InitializeWeights());
    const std::vector<HostMicroBatch> batches = Batches(world.rank());
    Seen mine;
    if (evaluates) {
      CKPT_ASSIGN_OR_RETURN(mine.evaluation, trainer->Evaluate(batches));
    }
    CKPT_ASSIGN_OR_RETURN(mine.report, trainer->Step(batches));
    CKPT_ASSIGN_OR_RETURN(const StepReport second, trainer->Step(batches));
    mine.second_loss = second.loss;
    if (world.rank() == 0) seen = mine;
    return OkStatus();
  };
  CKPT_RETURN_IF_ERROR(RunRanks(2, on_rank));
  return seen;
}

class EvaluateTest : public ::testing::TestWithParam<bool> {};

TEST_P(EvaluateTest, FindsTheLossOfAStep) {
  const auto config = Config({{"calculate_per_token_loss", GetParam()}});
  ASSERT_THAT(config, IsOk());
  const auto seen = TrainTwoSteps(*config, true);
  ASSERT_THAT(seen, IsOk());
  EXPECT_DOUBLE_EQ(seen->evaluation.loss, seen->report.loss);
  EXPECT_EQ(seen->evaluation.tokens, seen->report.tokens);
}

TEST_P(EvaluateTest, LeavesNoTrace) {
  const auto config = Config({{"calculate_per_token_loss", GetParam()}});
  ASSERT_THAT(config, IsOk());
  const auto with = TrainTwoSteps(*config, true);
  const auto without = TrainTwoSteps(*config, false);
  ASSERT_THAT(with, IsOk());
  ASSERT_THAT(without, IsOk());
  EXPECT_EQ(with->report.loss, without->report.loss);
  EXPECT_EQ(with->second_loss, without->second_loss);
}

INSTANTIATE_TEST_SUITE_P(PerToken, EvaluateTest, ::testing::Bool());

}  // namespace
}  // namespace ckpt::trainer

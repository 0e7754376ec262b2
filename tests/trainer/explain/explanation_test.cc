// What explain says, against what a run does.
#include "trainer/explain/explanation.h"

#include <algorithm>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/matchers.h"
#include "tests/trainer/run/small_run.h"
#include "trainer/comm/thread_comm.h"
#include "trainer/device/cpu/host_device.h"
#include "trainer/model/model.h"
#include "trainer/ops/cpu/host_ops.h"
#include "trainer/step/rank_trainer.h"

namespace ckpt::train {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::SmallMoeRun;

struct MeshCase {
  int ranks = 1;
  layout::Configuration settings = {};
};
void PrintTo(const MeshCase& mesh, std::ostream* out) {
  *out << mesh.ranks << " ranks";
  for (const auto& [name, value] : mesh.settings) {
    *out << ", " << name << " " << layout::FormatValue(value);
  }
}

struct Measured {
  trainer::ParamStoreCounters counters;
  std::vector<std::string> param_names;
  std::uint64_t weights = 0, main_weights = 0, gradients = 0, optimizer = 0, slots = 0;
};

trainer::HostMicroBatch AnyBatch(const trainer::TrainConfig& config) {
  const auto tokens = static_cast<std::size_t>(config.micro_batch_size * config.seq_length);
  std::vector<std::int32_t> values(tokens);
  for (std::size_t i = 0; i < tokens; ++i) values[i] = static_cast<std::int32_t>(i % 37);
  return {.tokens = std::move(values),
          .labels = std::vector<std::int32_t>(tokens, 5),
          .batch = config.micro_batch_size,
          .seq = config.seq_length};
}

// What a rank has done and held after one step.
Result<Measured> MeasureStep(const trainer::TrainConfig& config, trainer::HostGroup& world) {
  const auto device = trainer::MakeHostDevice({});
  const auto ops = trainer::MakeHostOps({});
  CKPT_ASSIGN_OR_RETURN(
      const auto trainer,
      trainer::RankTrainer::Create(config, world, {.device = device.get(), .ops = ops.get()}));
  CKPT_RETURN_IF_ERROR(trainer->InitializeWeights());
  const std::vector<trainer::HostMicroBatch> batches(
      static_cast<std::size_t>(config.num_micro_batches()), AnyBatch(config));
  CKPT_RETURN_IF_ERROR(trainer->Step(batches).status());
  CKPT_RETURN_IF_ERROR(trainer->params().Synchronize());

  const auto peak = [&](trainer::MemoryUse use) { return device->usage(use).peak_bytes; };
  Measured measured = {.counters = trainer->params().counters(),
                       .param_names = {},
                       .weights = peak(trainer::MemoryUse::kWeights),
                       .main_weights = peak(trainer::MemoryUse::kMainWeights),
                       .gradients = peak(trainer::MemoryUse::kGradients),
                       .optimizer = peak(trainer::MemoryUse::kOptimizer),
                       .slots = peak(trainer::MemoryUse::kSlots)};
  for (const trainer::UnitSpec& unit : trainer->model().units()) {
    for (const trainer::ParamSpec& param : unit.params) measured.param_names.push_back(param.name);
  }
  return measured;
}

// Of the last rank.
Result<Measured> MeasureRun(const trainer::TrainConfig& config) {
  Measured measured;
  const auto body = [&](trainer::HostGroup& world) -> Status {
    CKPT_ASSIGN_OR_RETURN(Measured mine, MeasureStep(config, world));
    if (world.rank() + 1 == world.size()) measured = std::move(mine);
    return OkStatus();
  };
  CKPT_RETURN_IF_ERROR(trainer::RunRanks(config.mesh.world_size, body));
  return measured;
}

class ExplanationTest : public ::testing::TestWithParam<MeshCase> {};

TEST_P(ExplanationTest, SaysWhatARunDoes) {
  const auto config = SmallMoeRun(GetParam().ranks, GetParam().settings);
  ASSERT_THAT(config, IsOk());
  const int rank = GetParam().ranks - 1;
  const auto explanation = Explain(*config, rank);
  ASSERT_THAT(explanation, IsOk());
  const auto measured = MeasureRun(*config);
  ASSERT_THAT(measured, IsOk());

  const CommSchedule& schedule = explanation->schedule;
  const std::int64_t later = config->num_micro_batches() - 1;
  EXPECT_EQ(
      measured->counters.gathers,
      schedule.first.forward_gathers.calls + schedule.first.backward_gathers.calls +
          later * (schedule.later.forward_gathers.calls + schedule.later.backward_gathers.calls));
  EXPECT_EQ(measured->counters.reduces,
            schedule.first.reduces.calls + later * schedule.later.reduces.calls);
  EXPECT_EQ(measured->counters.late_reduces, schedule.late_reduces.calls);
  EXPECT_EQ(measured->counters.refreshes, 2 * schedule.refreshes.calls);  // drawn, then updated

  EXPECT_EQ(measured->weights, explanation->bytes.weights);
  EXPECT_EQ(measured->main_weights, explanation->bytes.main_weights);
  EXPECT_EQ(measured->gradients, explanation->bytes.gradients);
  EXPECT_EQ(measured->optimizer, explanation->bytes.optimizer);
  EXPECT_EQ(measured->slots, explanation->bytes.slots);

  std::vector<std::string> listed;
  const trainer::Topology place(config->mesh, rank);
  for (const trainer::UnitSpec& unit :
       trainer::ListUnits(config->model, place.expert(), config->mesh.expert_parallel)) {
    for (const trainer::ParamSpec& param : unit.params) listed.push_back(param.name);
  }
  EXPECT_EQ(measured->param_names, listed);
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, ExplanationTest,
    ::testing::Values(
        MeshCase{}, MeshCase{4, {{"global_batch_size", 12}}},
        MeshCase{4,
                 {{"overlap_grad_reduce", true},
                  {"overlap_param_gather", true},
                  {"global_batch_size", 8}}},
        MeshCase{2, {{"optimizer_cpu_offload", true}}},
        MeshCase{2, {{"weight_slots", 3}, {"global_batch_size", 6}}},
        MeshCase{2,
                 {{"weight_slots", 4},
                  {"overlap_grad_reduce", true},
                  {"overlap_param_gather", true},
                  {"global_batch_size", 6}}},
        MeshCase{2,
                 {{"weight_slots", 3},
                  {"prefetch_depth", 2},
                  {"overlap_grad_reduce", true},
                  {"overlap_param_gather", true},
                  {"global_batch_size", 6}}},
        MeshCase{2, {{"untie_embeddings_and_output_weights", false}, {"global_batch_size", 4}}},
        MeshCase{4, {{"data_parallel_sharding_strategy", "no_shard"}}},
        MeshCase{4, {{"data_parallel_sharding_strategy", "optim"}, {"global_batch_size", 8}}},
        MeshCase{4, {{"data_parallel_sharding_strategy", "optim_grads"}, {"bf16", true}}},
        MeshCase{4,
                 {{"num_distributed_optimizer_instances", 2},
                  {"expert_model_parallel_size", 2},
                  {"global_batch_size", 8}}},
        MeshCase{4,
                 {{"num_distributed_optimizer_instances", 2},
                  {"outer_dp_sharding_strategy", "optim"},
                  {"bf16", true},
                  {"grad_comm_dtype", "bf16"},
                  {"global_batch_size", 8}}},
        MeshCase{2,
                 {{"expert_model_parallel_size", 2},
                  {"recompute_granularity", "full"},
                  {"reduction", "canonical"},
                  {"optimizer", "sgd"}}}));

// Shapes whose activations outgrow the pieces that memory is asked for in.
layout::Configuration LargeBatch(const layout::Configuration& more) {
  layout::Configuration settings = {{"seq_length", 128},         {"micro_batch_size", 4},
                                    {"hidden_size", 64},         {"ffn_hidden_size", 384},
                                    {"moe_ffn_hidden_size", 96}, {"vocab_size", 5000}};
  for (const auto& [name, value] : more) settings[name] = value;
  return settings;
}

struct MeasuredPeak {
  std::uint64_t activations = 0;
  std::uint64_t reported = 0;  // of everything, by the step
};

// What a rank holds, a step and an evaluation behind it.
Result<MeasuredPeak> MeasurePeak(const trainer::TrainConfig& config) {
  MeasuredPeak measured;
  const auto body = [&](trainer::HostGroup& world) -> Status {
    const auto device = trainer::MakeHostDevice({});
    const auto ops = trainer::MakeHostOps({});
    CKPT_ASSIGN_OR_RETURN(
        const auto trainer,
        trainer::RankTrainer::Create(config, world, {.device = device.get(), .ops = ops.get()}));
    CKPT_RETURN_IF_ERROR(trainer->InitializeWeights());
    const std::vector<trainer::HostMicroBatch> batches(
        static_cast<std::size_t>(config.num_micro_batches()), AnyBatch(config));
    CKPT_ASSIGN_OR_RETURN(const trainer::StepReport report, trainer->Step(batches));
    CKPT_RETURN_IF_ERROR(trainer->Evaluate(batches).status());
    if (world.rank() != 0) return OkStatus();
    measured = {.activations = device->usage(trainer::MemoryUse::kActivations).peak_bytes,
                .reported = report.peak_bytes};
    return OkStatus();
  };
  CKPT_RETURN_IF_ERROR(trainer::RunRanks(config.mesh.world_size, body));
  return measured;
}

// Of the rank that holds most, as a step reports it: one may sum more rows than another.
std::uint64_t MostTotalBytes(const trainer::TrainConfig& config) {
  std::uint64_t most = 0;
  for (int rank = 0; rank < config.mesh.world_size; ++rank) {
    const auto explanation = Explain(config, rank);
    EXPECT_THAT(explanation, IsOk());
    if (explanation.ok()) most = std::max(most, explanation->total_bytes());
  }
  return most;
}

class ActivationsTest : public ::testing::TestWithParam<MeshCase> {};

TEST_P(ActivationsTest, AreWhatARunHolds) {
  const auto config = SmallMoeRun(GetParam().ranks, LargeBatch(GetParam().settings));
  ASSERT_THAT(config, IsOk());
  const auto explanation = Explain(*config, 0);
  ASSERT_THAT(explanation, IsOk());
  const auto measured = MeasurePeak(*config);
  ASSERT_THAT(measured, IsOk());
  EXPECT_GT(explanation->activation_bytes, std::uint64_t{8} << 20) << "more than one piece";
  EXPECT_EQ(explanation->activation_bytes, measured->activations);
  EXPECT_EQ(MostTotalBytes(*config), measured->reported);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, ActivationsTest,
    ::testing::Values(MeshCase{}, MeshCase{1, {{"recompute_granularity", "selective"}}},
                      MeshCase{1, {{"recompute_granularity", "full"}}},
                      MeshCase{2, {{"bf16", true}}}, MeshCase{1, {{"loss_chunk_tokens", 100}}},
                      MeshCase{1,
                               {{"num_experts", layout::Value()},
                                {"moe_layer_freq", layout::Value()},
                                {"moe_ffn_hidden_size", layout::Value()}}},
                      MeshCase{1, {{"frozen", layout::Value::List{"*.linear_fc1.*"}}}},
                      MeshCase{1,
                               {{"moe_expert_capacity_factor", 1.5},
                                {"moe_pad_expert_input_to_capacity", true}}},
                      // Ranks that share the experts have memory for the most rows that can come,
                      // or for the given number.
                      MeshCase{2, {{"expert_model_parallel_size", 2}}},
                      MeshCase{2,
                               {{"expert_model_parallel_size", 2},
                                {"moe_token_dispatcher_type", "allgather"},
                                {"recompute_granularity", "full"}}},
                      MeshCase{4,
                               {{"expert_model_parallel_size", 4},
                                {"moe_expert_rank_capacity_factor", 3.5},
                                {"recompute_granularity", "full"}}},
                      MeshCase{2,
                               {{"expert_model_parallel_size", 2},
                                {"moe_expert_capacity_factor", 1.5},
                                {"moe_pad_expert_input_to_capacity", true}}}));

// What grows with the vocabulary and is not a parameter is in the total too: each row of a gradient
// has a sum, and weights are drawn on the host.
class LargeVocabularyTest : public ::testing::TestWithParam<MeshCase> {};

TEST_P(LargeVocabularyTest, TotalIsThePeakThatAStepReports) {
  layout::Configuration settings = {{"vocab_size", 50000}, {"hidden_size", 16}};
  for (const auto& [name, value] : GetParam().settings) settings[name] = value;
  const auto config = SmallMoeRun(GetParam().ranks, settings);
  ASSERT_THAT(config, IsOk());
  const auto measured = MeasurePeak(*config);
  ASSERT_THAT(measured, IsOk());
  EXPECT_EQ(MostTotalBytes(*config), measured->reported);
}

INSTANTIATE_TEST_SUITE_P(
    Runs, LargeVocabularyTest,
    ::testing::Values(
        MeshCase{}, MeshCase{1, {{"untie_embeddings_and_output_weights", false}}},
        MeshCase{1,
                 {{"moe_router_enable_expert_bias", true},
                  {"moe_router_score_function", "sigmoid"},
                  {"bf16", true}}},
        MeshCase{1, {{"optimizer_cpu_offload", true}}},
        MeshCase{1, {{"frozen", layout::Value::List{"embedding.*"}}}},
        MeshCase{2, {{"untie_embeddings_and_output_weights", false}, {"global_batch_size", 8}}},
        MeshCase{2, {{"data_parallel_sharding_strategy", "no_shard"}}}));

TEST(ExplainTest, RefusesSlotsPastTheCapAndSaysWhatFits) {
  auto config = SmallMoeRun(2, {{"weight_slots", 6}});
  ASSERT_THAT(config, IsOk());
  const auto without_cap = Explain(*config, 0);
  ASSERT_THAT(without_cap, IsOk());
  config->max_unsharded_bytes = without_cap->bytes.slots;
  EXPECT_THAT(Explain(*config, 0), IsOk());

  config->max_unsharded_bytes -= 1;
  const auto capped = Explain(*config, 0);
  ASSERT_THAT(capped.status(), FailsWith(ErrorKind::kUsage));
  EXPECT_THAT(capped.status().ToString(), HasSubstr(std::to_string(without_cap->bytes.slots)));
  EXPECT_THAT(capped.status().ToString(), HasSubstr("or weight_slots=2 and gradient_slots=1"));
  config->slots = {.weight_slots = 2, .gradient_slots = 1};
  EXPECT_THAT(Explain(*config, 0), IsOk());
}

TEST(ExplainTest, RefusesARankThatTheMeshDoesNotHave) {
  const auto config = SmallMoeRun(2);
  ASSERT_THAT(config, IsOk());
  EXPECT_THAT(Explain(*config, 2).status(), FailsWith(ErrorKind::kUsage));
}

}  // namespace
}  // namespace ckpt::train

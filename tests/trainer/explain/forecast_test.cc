#include "trainer/explain/forecast.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/matchers.h"
#include "trainer/bench/bench_model.h"
#include "trainer/model/settings_reader.h"
#include "trainer/step/parse_train_config.h"

namespace ckpt::train {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;

// 16,384 tokens a rank in sequences of 4096, in bfloat16, as docs/bench measures them.
trainer::TrainConfig BenchRun(std::string_view model, const layout::Configuration& more = {},
                              int ranks = 1) {
  layout::Configuration settings = *BenchSettings(model);
  settings["bf16"] = true;
  settings["seq_length"] = 4096;
  settings["micro_batch_size"] = 4;
  settings["overlap_grad_reduce"] = true;
  settings["overlap_param_gather"] = true;
  for (const auto& [name, value] : more) settings[name] = value;
  trainer::SettingsReader reader(settings);
  auto config = trainer::ParseTrainConfig(reader, ranks);
  EXPECT_THAT(config, IsOk());
  return *config;
}

Cluster ClusterOf(std::string_view name) {
  const auto cluster = ParseCluster(name);
  EXPECT_THAT(cluster, IsOk());
  return *cluster;
}

StepTime StepOf(const trainer::TrainConfig& config, const Cluster& cluster) {
  const auto forecast = ForecastStep(config, cluster);
  EXPECT_THAT(forecast, IsOk());
  return forecast->step;
}

struct MeasuredStep {
  const char* model;
  layout::Configuration more;
  double ms;
};

// Medians on one H200: of d1 and m1 docs/bench/2026-11-26-cuda-exchange.md; of the others
// 2026-11-24-cuda-one-gpu.md and 2026-11-23-cuda-experts.md, before some kernels became faster.
TEST(ForecastTest, OfOneGpuIsTheMeasuredStepWithinFivePercent) {
  const MeasuredStep cases[] = {
      {"d1", {{"main_grads_dtype", "bf16"}}, 164.3},
      {"d2", {}, 350.5},
      {"d2", {{"main_grads_dtype", "bf16"}}, 347.0},
      {"m1", {{"main_grads_dtype", "bf16"}}, 190.0},
      {"m2", {{"num_layers", 8}}, 166.7},
      {"m2", {{"num_layers", 8}, {"main_grads_dtype", "bf16"}}, 162.2},
  };
  for (const MeasuredStep& measured : cases) {
    const StepTime step = StepOf(BenchRun(measured.model, measured.more), ClusterOf("h200x1"));
    EXPECT_NEAR(step.total() / measured.ms, 1, 0.05) << measured.model << " " << measured.ms;
    EXPECT_EQ(step.exposed(), 0) << measured.model;
  }
}

// docs/bench/2026-11-26-cuda-exchange.md: medians on two machines of two H200; of m1 with balanced
// experts on both and with natural routing, of m2 with natural routing.
TEST(ForecastTest, OfTwoGpusIsTheMeasuredStepWithinFivePercent) {
  const layout::Configuration whole = {{"data_parallel_sharding_strategy", "optim_grads"},
                                       {"grad_comm_dtype", "bf16"}};
  const MeasuredStep cases[] = {{"d1", whole, 165.2}, {"d1", whole, 167.7}, {"m1", whole, 184.9},
                                {"m1", whole, 188.6}, {"m1", whole, 189.0}, {"m2", whole, 291.3},
                                {"m2", whole, 294.8}};
  for (const MeasuredStep& measured : cases) {
    const StepTime step = StepOf(BenchRun(measured.model, measured.more, 2), ClusterOf("h200x2"));
    EXPECT_NEAR(step.total() / measured.ms, 1, 0.05) << measured.model << " " << measured.ms;
    EXPECT_GT(step.exposed(), 0) << measured.model;
  }
}

// m1's experts have 2,048 rows each on average, of which the last tile is half empty.
TEST(ForecastTest, ProductsOfExpertsAreOfWholeTiles) {
  Cluster cluster = ClusterOf("h200x1");
  const auto step_with_tiles = [&cluster](double rows, double sums) {
    cluster.gpu.expert_tile_rows.value = rows;
    cluster.gpu.expert_sum_rows.value = sums;
    return StepOf(BenchRun("m1"), cluster).compute;
  };
  const double least = step_with_tiles(0, 0);
  const double products = 6.0 * 16384 * 8 * 3 * 1024 * 640 * 24 / 633e12 * 1e3;
  EXPECT_NEAR(step_with_tiles(256, 0) - least, products * 2 / 3 * 128 / 2048, 1e-6);
  EXPECT_NEAR(step_with_tiles(0, 64) - least, products * 1 / 3 * 32 / 2048, 1e-6);
  // An expert has one tile at least.
  EXPECT_NEAR(step_with_tiles(8192, 0) - least, products * 2 / 3 * 3, 1e-6);
}

// Every strategy, with experts whole and divided.
std::vector<std::pair<const char*, layout::Configuration>> Strategies() {
  return {
      {"no_shard", {{"data_parallel_sharding_strategy", "no_shard"}}},
      {"optim", {{"data_parallel_sharding_strategy", "optim"}}},
      {"optim_grads", {{"data_parallel_sharding_strategy", "optim_grads"}}},
      {"optim_grads_params", {}},
      {"hsdp", {{"num_distributed_optimizer_instances", 8}}},
      {"hfsdp",
       {{"num_distributed_optimizer_instances", 8}, {"outer_dp_sharding_strategy", "optim"}}},
      {"experts", {{"expert_model_parallel_size", 8}}},
      {"experts hfsdp",
       {{"num_distributed_optimizer_instances", 8},
        {"outer_dp_sharding_strategy", "optim"},
        {"expert_model_parallel_size", 8}}},
  };
}

void SpeedUpLinks(Cluster& cluster, double times) {
  for (Rate* rate : {&cluster.gpu.gather_bytes, &cluster.gpu.reduce_bytes,
                     &cluster.gpu.exchange_bytes, &cluster.network.port_bytes}) {
    rate->value *= times;
  }
  for (Rate* rate : {&cluster.gpu.call_seconds, &cluster.gpu.host_hop_seconds,
                     &cluster.gpu.network_hop_seconds}) {
    rate->value /= times;
  }
}

TEST(ForecastTest, WithInfinitelyFastLinksAStepIsItsComputing) {
  for (const auto& [name, settings] : Strategies()) {
    Cluster cluster = ClusterOf("h200x8,ib400");
    SpeedUpLinks(cluster, std::numeric_limits<double>::infinity());
    const StepTime step = StepOf(BenchRun("m1", settings, 64), cluster);
    EXPECT_EQ(step.exposed(), 0) << name;
    EXPECT_GT(step.compute, 0) << name;
  }
}

TEST(ForecastTest, FasterLinksNeverMakeAStepSlower) {
  for (const auto& [name, settings] : Strategies()) {
    double before = std::numeric_limits<double>::infinity();
    for (const double times : {0.01, 0.1, 0.5, 1.0, 2.0, 10.0, 1000.0}) {
      Cluster cluster = ClusterOf("h200x8,ib400");
      SpeedUpLinks(cluster, times);
      const StepTime step = StepOf(BenchRun("m1", settings, 64), cluster);
      EXPECT_LE(step.total(), before) << name << ", " << times;
      EXPECT_GE(std::min({step.gather_wait, step.reduce_wait, step.exchange}), 0) << name;
      before = step.total();
    }
  }
}

TEST(ForecastTest, ASweepHasEveryMeshThatExists) {
  const auto sweep = SweepCluster(BenchRun("d1"), ClusterOf("h200x8,ib400"), 16384);
  ASSERT_THAT(sweep, IsOk());
  std::map<std::pair<int, Strategy>, Forecast> cells;
  for (const SweepCell& cell : *sweep) {
    cells[{cell.forecast.mesh.world_size, cell.strategy}] = cell.forecast;
    EXPECT_GE(cell.forecast.step.exposed(), 0);
  }
  // 1 to 16,384, of which 16 and more have several hosts.
  EXPECT_EQ(cells.size(), sweep->size());
  EXPECT_EQ(sweep->size(), 15U * 4 + 11U * 2);
  // On one GPU all are the same, and on many hosts replicas of hosts wait less than
  // one ring of all.
  EXPECT_EQ((cells.at({1, Strategy::kNoShard}).step.total()),
            (cells.at({1, Strategy::kOptimGradsParams}).step.total()));
  EXPECT_LT((cells.at({16384, Strategy::kHsdp}).step.exposed()),
            (cells.at({16384, Strategy::kOptimGradsParams}).step.exposed()));
  // What many divide takes less memory.
  EXPECT_LT((cells.at({64, Strategy::kOptimGradsParams}).bytes_of_gpu),
            (cells.at({8, Strategy::kOptimGradsParams}).bytes_of_gpu));
}

TEST(ForecastTest, ASweepOfDividedExpertsBeginsWhereTheyFit) {
  const auto sweep =
      SweepCluster(BenchRun("m1", {{"expert_model_parallel_size", 8}}, 8), ClusterOf("h200x8"), 64);
  ASSERT_THAT(sweep, IsOk());
  ASSERT_EQ(sweep->size(), 4U);  // eight GPUs, one host
  for (const SweepCell& cell : *sweep) {
    EXPECT_EQ(cell.forecast.mesh.world_size, 8);
    EXPECT_GT(cell.forecast.step.exchange, 0);
  }
}

TEST(ForecastTest, TellsWhatDoesNotFit) {
  const auto forecast = ForecastStep(BenchRun("m3"), ClusterOf("h200x1"));
  ASSERT_THAT(forecast, IsOk());
  EXPECT_FALSE(forecast->fits);
}

// Where experts are divided, memory for the most rows that can come may be all that is too much.
TEST(ForecastTest, TellsWhatWouldFitIfTheRowsOfExpertsWereBounded) {
  const layout::Configuration divided = {{"expert_model_parallel_size", 8}};
  Cluster cluster = ClusterOf("h200x8");
  const auto forecast = [&](const layout::Configuration& settings) {
    const auto made = ForecastStep(BenchRun("m1", settings, 8), cluster);
    EXPECT_THAT(made, IsOk());
    return *made;
  };
  const Forecast most = forecast(divided);
  layout::Configuration bounded = divided;
  bounded["moe_expert_rank_capacity_factor"] = 1.0;
  const Forecast mean = forecast(bounded);
  ASSERT_LT(mean.bytes_of_gpu, most.bytes_of_gpu);

  cluster.gpu.memory_bytes.value = static_cast<double>(most.bytes_of_gpu);
  EXPECT_TRUE(forecast(divided).fits);
  EXPECT_EQ(forecast(divided).bytes_with_mean_rows, std::nullopt);

  cluster.gpu.memory_bytes.value = static_cast<double>(mean.bytes_of_gpu);
  EXPECT_FALSE(forecast(divided).fits);
  EXPECT_EQ(forecast(divided).bytes_with_mean_rows, mean.bytes_of_gpu);
  EXPECT_TRUE(forecast(bounded).fits);
  const auto sweep = SweepCluster(BenchRun("m1", divided, 8), cluster, 8);
  ASSERT_THAT(sweep, IsOk());
  EXPECT_TRUE(std::ranges::any_of(*sweep, [&](const SweepCell& cell) {
    return cell.forecast.bytes_with_mean_rows == mean.bytes_of_gpu;
  }));

  // It is not an answer where the rest alone is too much, nor where rows are bounded already.
  cluster.gpu.memory_bytes.value -= 1;
  EXPECT_EQ(forecast(divided).bytes_with_mean_rows, std::nullopt);
  EXPECT_FALSE(forecast(bounded).fits);
  EXPECT_EQ(forecast(bounded).bytes_with_mean_rows, std::nullopt);
}

TEST(ForecastTest, RefusesMoreRanksThanOneHostHas) {
  EXPECT_THAT(ForecastStep(BenchRun("d1", {}, 16), ClusterOf("h200x8")).status(),
              FailsWith(ErrorKind::kUsage));
}

TEST(ClusterTest, NamesWhatItKnows) {
  const Cluster cluster = ClusterOf("h200x8,ib400");
  EXPECT_EQ(cluster.gpus_per_host, 8);
  EXPECT_EQ(cluster.network.name, "ib400");
  ForEachRate(cluster, [](std::string_view name, const Rate& rate) {
    EXPECT_GT(rate.value, 0) << name;
    EXPECT_FALSE(rate.source.empty()) << name;
  });
  for (const char* wrong :
       {"", "h200", "h200x", "h200x0", "h300x8", "h200x8,", "h200x8,eth", "x8", "h200x8x"}) {
    const auto parsed = ParseCluster(wrong);
    ASSERT_THAT(parsed.status(), FailsWith(ErrorKind::kUsage)) << wrong;
    EXPECT_THAT(parsed.status().ToString(), HasSubstr("ib400"));
  }
}

}  // namespace
}  // namespace ckpt::train

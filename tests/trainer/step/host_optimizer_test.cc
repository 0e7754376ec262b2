// Runs whose optimizer keeps its moments in the host's memory, beside runs that keep them on the
// device.
#include <mutex>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/matchers.h"
#include "tests/trainer/step/trained_run.h"
#include "trainer/optim/optimizer.h"

namespace ckpt {
namespace {

using testing::IsOk;
using testing::OnMesh;
using testing::RunOptions;
using testing::SmallMoe;
using testing::SmallRun;
using testing::Train;
using namespace trainer;  // NOLINT(google-build-using-namespace)

TrainConfig OnHost(TrainConfig config, std::int64_t block_elems) {
  config.optimizer.moments_on_host = true;
  config.optimizer.host_block_elems = block_elems;
  return config;
}

// Few blocks, so that an update's first block may be the last one of the update before; and many.
TEST(HostOptimizerTest, GivesTheBitsOfMomentsOnTheDevice) {
  for (const OptimizerKind kind : {OptimizerKind::kAdam, OptimizerKind::kSgd}) {
    TrainConfig config = OnMesh(SmallRun(SmallMoe(), 8), {.world_size = 4,
                                                          .num_instances = 2,
                                                          .expert_parallel = 2,
                                                          .outer = OuterSharding::kOptim});
    config.optimizer.kind = kind;
    const auto want = Train(config, {.steps = 4});
    ASSERT_THAT(want, IsOk());
    for (const std::int64_t block_elems : {HostMoments::kBlockElems, std::int64_t{64}}) {
      for (const QueueMode queues : {QueueMode::kInline, QueueMode::kThreads}) {
        const auto run =
            Train(OnHost(config, block_elems),
                  {.steps = 4, .device = {.queues = queues, .delay_seed = 7}, .is_strict = true});
        ASSERT_THAT(run, IsOk());
        EXPECT_EQ(run->weights, want->weights);
        EXPECT_EQ(run->reports.back().loss, want->reports.back().loss);
      }
    }
  }
}

// Two ranks keep gradients as two terms of bfloat16, and where they read each other's memory, an
// update writes both ranks' weights. A block is then a part of both.
TEST(HostOptimizerTest, GivesTheSameBitsWhereUpdatesAddTermsAndWriteBothRanksWeights) {
  TrainConfig config =
      OnMesh(SmallRun(SmallMoe(), 2), {.world_size = 2, .sharding = Sharding::kOptimGrads});
  config.precision.compute = config.precision.grad_comm = DType::kBfloat16;
  for (const OptimizerKind kind : {OptimizerKind::kAdam, OptimizerKind::kSgd}) {
    config.optimizer.kind = kind;
    for (const bool reads_peers : {false, true}) {
      RunOptions options = {.steps = 4,
                            .device = {.queues = QueueMode::kThreads, .reads_peers = reads_peers},
                            .is_strict = true,
                            .inspect = [reads_peers](RankTrainer& trainer, Device&) {
                              for (const MainArrays& main : trainer.params().mains()) {
                                EXPECT_TRUE(main.gradient.second);
                                EXPECT_EQ(static_cast<bool>(main.compute.other), reads_peers);
                              }
                            }};
      const auto want = Train(config, options);
      ASSERT_THAT(want, IsOk());
      for (const std::int64_t block_elems : {HostMoments::kBlockElems, std::int64_t{64}}) {
        for (const std::uint64_t delay_seed : {3U, 4U}) {
          options.device.delay_seed = delay_seed;
          const auto run = Train(OnHost(config, block_elems), options);
          ASSERT_THAT(run, IsOk());
          EXPECT_EQ(run->weights, want->weights);
          EXPECT_EQ(run->reports.back().loss, want->reports.back().loss);
          EXPECT_EQ(run->reports.back().grad_norm, want->reports.back().grad_norm);
        }
      }
    }
  }
}

TEST(HostOptimizerTest, TheDeviceHoldsOnlyBlocks) {
  const TrainConfig config = OnHost(OnMesh(SmallRun(SmallMoe(), 2), {.world_size = 2}), 64);
  std::mutex mutex;
  const RunOptions options = {
      .steps = 1, .inspect = [&](RankTrainer& trainer, Device& device) {
        std::uint64_t host_bytes = 0;
        const ShardPlan& plan = trainer.params().plan();
        const PlannedBytes planned = PlanTrainingBytes(config.optimizer, plan, &host_bytes);
        const std::lock_guard lock(mutex);
        EXPECT_EQ(device.usage(MemoryUse::kOptimizer).peak_bytes, planned.optimizer);
        EXPECT_EQ(planned.optimizer, 3U * 2 * 64 * 4);
        EXPECT_EQ(host_bytes, PlanBytes(plan, 2).optimizer);
      }};
  EXPECT_THAT(Train(config, options), IsOk());
}

}  // namespace
}  // namespace ckpt

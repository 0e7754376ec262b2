// What the engine promises beside the numbers: memory, counts of collectives, waits, frozen
// parameters, number types, errors.
#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/forwarding_device.h"
#include "tests/testing/matchers.h"
#include "tests/trainer/model/dispatchers.h"
#include "tests/trainer/step/trained_run.h"
#include "trainer/comm/thread_comm.h"
#include "trainer/ops/cpu/host_ops.h"
#include "trainer/ops/forwarding_ops.h"

namespace ckpt {
namespace {

using testing::AllDispatchers;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::kHybrid;
using testing::kHybridOuter;
using testing::OnMesh;
using testing::RelativeDifference;
using testing::RunOptions;
using testing::SmallDeepSeek;
using testing::SmallMoe;
using testing::SmallRun;
using testing::Train;
using testing::TrainedRun;
using namespace trainer;  // NOLINT(google-build-using-namespace)

// --- memory --------------------------------------------------------------------------------------

void ExpectMemoryAsPlanned(const TrainConfig& config) {
  std::mutex mutex;
  const RunOptions options = {.inspect = [&](RankTrainer& trainer, Device& device) {
    const PlannedBytes planned = PlanTrainingBytes(config.optimizer, trainer.params().plan());
    const std::lock_guard lock(mutex);
    EXPECT_EQ(device.usage(MemoryUse::kWeights).peak_bytes, planned.weights);
    EXPECT_EQ(device.usage(MemoryUse::kMainWeights).peak_bytes, planned.main_weights);
    EXPECT_EQ(device.usage(MemoryUse::kGradients).peak_bytes, planned.gradients);
    EXPECT_EQ(device.usage(MemoryUse::kOptimizer).peak_bytes, planned.optimizer);
    EXPECT_EQ(device.usage(MemoryUse::kSlots).peak_bytes, planned.slots);
  }};
  EXPECT_THAT(Train(config, options), IsOk());
}

TEST(EngineMemoryTest, PeakOfEveryRankIsWhatThePlanSays) {
  for (const Sharding sharding :
       {Sharding::kNoShard, Sharding::kOptim, Sharding::kOptimGrads, Sharding::kOptimGradsParams}) {
    SCOPED_TRACE(ShardingName(sharding));
    TrainConfig config = OnMesh(SmallRun(SmallDeepSeek(), 16), kHybrid);
    config.mesh.sharding = sharding;
    ExpectMemoryAsPlanned(config);
  }
  ExpectMemoryAsPlanned(OnMesh(SmallRun(SmallDeepSeek(), 16), kHybridOuter));
}

TEST(EngineMemoryTest, MixedPrecisionIsPlannedToo) {
  TrainConfig config = OnMesh(SmallRun(SmallMoe(), 16), kHybridOuter);
  config.precision.compute = DType::kBfloat16;
  config.precision.grad_comm = DType::kBfloat16;
  ExpectMemoryAsPlanned(config);
}

// Bytes of the plan against the formulas: compute weights, gradients, main
// weights and two moments.
TEST(EngineMemoryTest, ShardingDividesWhatItNames) {
  ModelConfig model = SmallMoe();
  model.hidden_size = 64;  // large enough that padding does not matter
  model.ffn_hidden_size = 256;
  std::vector<PlannedBytes> planned;
  for (const Sharding sharding :
       {Sharding::kNoShard, Sharding::kOptim, Sharding::kOptimGrads, Sharding::kOptimGradsParams}) {
    TrainConfig config = OnMesh(SmallRun(model, 4), {.world_size = 4, .sharding = sharding});
    std::mutex mutex;
    const RunOptions options = {.steps = 1, .inspect = [&](RankTrainer& trainer, Device&) {
                                  const std::lock_guard lock(mutex);
                                  planned.push_back(PlanBytes(trainer.params().plan(), 2));
                                }};
    ASSERT_THAT(Train(config, options), IsOk());
  }
  const PlannedBytes& whole = planned[0];
  const PlannedBytes& optim = planned[4];
  const PlannedBytes& optim_grads = planned[8];
  const PlannedBytes& all = planned[12];
  constexpr double kPadding = 1.05;
  const auto is_quarter = [&](std::uint64_t part, std::uint64_t of) {
    return static_cast<double>(part) <= kPadding * static_cast<double>(of) / 4 && 4 * part >= of;
  };
  EXPECT_TRUE(is_quarter(optim.optimizer, whole.optimizer));
  EXPECT_TRUE(is_quarter(optim_grads.gradients, whole.gradients));
  EXPECT_TRUE(is_quarter(all.weights, whole.weights));
  EXPECT_GE(optim.gradients, whole.gradients);
  EXPECT_GE(optim_grads.weights, whole.weights);
}

TEST(EngineMemoryTest, ACapOnWholeUnitsIsKept) {
  TrainConfig config = OnMesh(SmallRun(SmallMoe(), 8), {.world_size = 2});
  config.max_unsharded_bytes = 1000;
  const Result<TrainedRun> run = Train(config, {});
  ASSERT_THAT(run, FailsWith(ErrorKind::kUsage));
  EXPECT_THAT(run.status().first().hint, HasSubstr("max_unsharded_bytes="));
}

// Rows per rank vary from step to step, but the memory for them does not. One layer's are larger
// than what the arena grows by at least.
TEST(EngineMemoryTest, ActivationsHoldLittleMoreThanAStepNeeds) {
  ModelConfig model = SmallMoe();
  model.moe->ffn_hidden_size = 2048;
  TrainConfig config = OnMesh(SmallRun(model, 2), {.world_size = 2, .expert_parallel = 2});
  config.seq_length = 768;
  std::mutex mutex;
  const RunOptions options = {.steps = 6, .inspect = [&](RankTrainer& trainer, Device& device) {
                                const std::lock_guard lock(mutex);
                                const std::uint64_t peak = trainer.model().activation_peak_bytes();
                                EXPECT_GT(peak, std::uint64_t{32} << 20);
                                EXPECT_LE(device.usage(MemoryUse::kActivations).current_bytes,
                                          peak + peak / 4);
                              }};
  EXPECT_THAT(Train(config, options), IsOk());
}

// Has no memory for activations larger than `limit_bytes`.
class FewActivationsDevice final : public testing::ForwardingDevice {
 public:
  FewActivationsDevice(std::unique_ptr<Device> device, std::uint64_t limit_bytes)
      : ForwardingDevice(std::move(device)), limit_bytes_(limit_bytes) {}

  Result<Buffer> Allocate(std::uint64_t size_bytes, MemoryUse use) override {
    if (use == MemoryUse::kActivations && size_bytes > limit_bytes_) {
      return Error(ErrorKind::kSystem, "out of memory");
    }
    return ForwardingDevice::Allocate(size_bytes, use);
  }

 private:
  const std::uint64_t limit_bytes_;
};

TEST(EngineMemoryTest, ActivationsThatDoNotFitAreAnErrorWithAHint) {
  ModelConfig model = SmallMoe();
  model.moe->ffn_hidden_size = 8192;
  for (const QueueMode queues : {QueueMode::kInline, QueueMode::kThreads}) {
    TrainConfig config = OnMesh(SmallRun(model, 2), {.world_size = 2, .expert_parallel = 2});
    config.seq_length = 256;
    const RunOptions options = {.steps = 1,
                                .device = {.queues = queues},
                                .wrap_device = [](std::unique_ptr<Device> device) {
                                  return std::make_unique<FewActivationsDevice>(
                                      std::move(device), std::uint64_t{8} << 20);
                                }};
    const Result<TrainedRun> run = Train(config, options);
    ASSERT_THAT(run, FailsWith(ErrorKind::kSystem));
    EXPECT_THAT(run.status().first().hint, HasSubstr("smaller micro-batches"));
  }
}

// --- frozen parameters and number types ----------------------------------------------------------

TEST(EngineTest, FrozenParametersStayAndOthersTrainAsBefore) {
  for (const MeshConfig& mesh :
       {MeshConfig{}, MeshConfig{.world_size = 4, .expert_parallel = 2}, kHybridOuter}) {
    TrainConfig config = OnMesh(SmallRun(SmallDeepSeek(), 8), mesh);
    config.clip_grad = 0;
    const Result<TrainedRun> start = Train(config, {.steps = 0});
    const Result<TrainedRun> all = Train(config, {.steps = 1});
    config.frozen = {"*.self_attention.*", "*.experts.linear_fc1.weight3", "embedding.*"};
    const Result<TrainedRun> some = Train(config, {.steps = 1});
    ASSERT_THAT(start, IsOk());
    ASSERT_THAT(all, IsOk());
    ASSERT_THAT(some, IsOk());
    for (const auto& [name, values] : some->weights) {
      const bool is_frozen = name.find("self_attention") != std::string::npos ||
                             name.ends_with("linear_fc1.weight3") || name.starts_with("embedding");
      EXPECT_TRUE(values == (is_frozen ? start : all)->weights.at(name)) << name;
    }
  }
}

TEST(EngineTest, BfloatTrainsTheSameOnEveryMeshWithinItsRounding) {
  TrainConfig config = SmallRun(SmallMoe(), 8);
  const Result<TrainedRun> exact = Train(config, {});
  config.precision.compute = DType::kBfloat16;
  const Result<TrainedRun> one = Train(config, {});
  const Result<TrainedRun> hybrid = Train(OnMesh(config, kHybridOuter), {});
  ASSERT_THAT(exact, IsOk());
  ASSERT_THAT(one, IsOk());
  ASSERT_THAT(hybrid, IsOk());
  EXPECT_NEAR(one->reports[1].loss, exact->reports[1].loss, 0.02 * exact->reports[1].loss);
  EXPECT_NEAR(hybrid->reports[1].loss, one->reports[1].loss, 0.005 * one->reports[1].loss);
  // Main weights keep what bfloat16 would lose.
  EXPECT_LT(RelativeDifference(hybrid->weights, one->weights), 0.02);
  EXPECT_GT(RelativeDifference(exact->weights, one->weights), 0);
}

TEST(EngineTest, NarrowWireAndSumsStayClose) {
  TrainConfig config = SmallRun(SmallMoe(), 16);
  const Result<TrainedRun> exact = Train(config, {});
  ASSERT_THAT(exact, IsOk());
  config.precision.grad_comm = DType::kBfloat16;
  for (const MeshConfig& mesh : {kHybrid, kHybridOuter}) {
    for (const Sharding sharding : {Sharding::kOptim, Sharding::kOptimGradsParams}) {
      TrainConfig narrow = OnMesh(config, mesh);
      if (mesh.outer == OuterSharding::kNoShard) narrow.mesh.sharding = sharding;
      const Result<TrainedRun> run = Train(narrow, {});
      ASSERT_THAT(run, IsOk());
      EXPECT_LT(RelativeDifference(run->first_gradients, exact->first_gradients), 0.02);
      EXPECT_GT(RelativeDifference(run->first_gradients, exact->first_gradients), 0);
    }
  }
}

// --- errors --------------------------------------------------------------------------------------

// Every rank has as many tokens, and a rank's experts get more or less of them than the mean.
TEST(EngineTest, RowsThatDoNotFitStopEveryRankAndNameTheSetting) {
  for (const Dispatcher dispatcher : AllDispatchers()) {
    TrainConfig config = OnMesh(SmallRun(SmallMoe(), 4), {.world_size = 4, .expert_parallel = 2});
    config.dispatcher = dispatcher;
    const Result<TrainedRun> unlimited = Train(config, {});
    ASSERT_THAT(unlimited, IsOk());
    config.rank_capacity_factor = 2;  // all tokens
    const Result<TrainedRun> enough = Train(config, {});
    ASSERT_THAT(enough, IsOk());
    EXPECT_EQ(enough->weights, unlimited->weights);

    config.rank_capacity_factor = 1;
    const Result<TrainedRun> run = Train(config, {});
    ASSERT_THAT(run, FailsWith(ErrorKind::kUsage));
    EXPECT_THAT(run.status().ToString(), HasSubstr("at most moe_expert_rank_capacity_factor=1"));
  }
}

// What was routed stays, although the memory of the layer was taken back.
TEST(EngineTest, RecomputationRoutesNoTokenAgain) {
  TrainConfig config =
      OnMesh(SmallRun(SmallDeepSeek(), 4), {.world_size = 2, .expert_parallel = 2});
  const Result<TrainedRun> kept = Train(config, {});
  ASSERT_THAT(kept, IsOk());
  for (const Recompute recompute : {Recompute::kActivations, Recompute::kLayers}) {
    config.recompute = recompute;
    const Result<TrainedRun> recomputed = Train(config, {});
    ASSERT_THAT(recomputed, IsOk());
    EXPECT_EQ(recomputed->weights, kept->weights);
  }
}

TEST(EngineTest, ALossThatIsNotFiniteStopsEveryRankAndUpdatesNothing) {
  TrainConfig config = OnMesh(SmallRun(SmallMoe(), 4), {.world_size = 4});
  config.schedule.max_lr = 1e30;  // the second step cannot end well
  const Result<TrainedRun> run = Train(config, {.steps = 3});
  ASSERT_THAT(run, FailsWith(ErrorKind::kValueMismatch));
  EXPECT_THAT(run.status().ToString(), HasSubstr("not finite"));
}

// Weights as each thread draws its rows of them.
TEST(EngineTest, AnyNumberOfThreadsDrawsTheSameWeights) {
  const TrainConfig config = SmallRun(SmallMoe(), 1);
  std::vector<float> expected;
  for (const int threads : {1, 3, 8}) {
    const auto world = std::move(MakeThreadWorld(1).front());
    const auto device = MakeHostDevice({});
    const auto ops = MakeHostOps({});
    const auto trainer = RankTrainer::Create(
        config, *world, {.device = device.get(), .ops = ops.get(), .host_threads = threads});
    ASSERT_THAT(trainer, IsOk());
    ASSERT_THAT((*trainer)->InitializeWeights(), IsOk());
    std::vector<float> drawn;
    for (const MainArrays& main : (*trainer)->params().mains()) {
      const float* const values = main.weights.as<float>();
      drawn.insert(drawn.end(), values, values + main.weights.num_elems());
    }
    if (threads == 1) expected = drawn;
    EXPECT_EQ(drawn, expected) << threads << " threads";
    EXPECT_GT(std::ranges::count_if(drawn, [](float value) { return value != 0; }), 1000);
  }
}

class FloatsOnlyOps final : public ForwardingOps {
 public:
  using ForwardingOps::ForwardingOps;
  [[nodiscard]] Status CheckSupports(const OpsNeeds& needs) const override {
    return needs.gradients == DType::kInt64 ? Error(ErrorKind::kUnsupported, "floats only")
                                            : OkStatus();
  }
};

TEST(EngineTest, WhatABackendCannotComputeIsRefusedBeforeAnythingIsAllocated) {
  TrainConfig config = SmallRun(SmallMoe(), 1);
  for (const Reduction reduction : {Reduction::kTree, Reduction::kCanonical}) {
    config.reduction = reduction;
    ApplyReduction(config);
    const auto world = std::move(MakeThreadWorld(1).front());
    const auto device = MakeHostDevice({});
    const auto ops = MakeHostOps({});
    FloatsOnlyOps floats(*ops);
    const auto trainer =
        RankTrainer::Create(config, *world, {.device = device.get(), .ops = &floats});
    if (reduction == Reduction::kTree) {
      EXPECT_THAT(trainer, IsOk());
      continue;
    }
    EXPECT_THAT(trainer.status(), FailsWith(ErrorKind::kUnsupported));
    for (int use = 0; use < kNumMemoryUses; ++use) {
      EXPECT_EQ(device->usage(static_cast<MemoryUse>(use)).peak_bytes, 0U);
    }
  }
}

TEST(TrainConfigTest, AllViolationsComeAtOnceWithWhatToDo) {
  TrainConfig config = SmallRun(SmallMoe(), 7);
  config.mesh = {
      .world_size = 6, .num_instances = 4, .expert_parallel = 3, .outer = OuterSharding::kOptim};
  config.overlap_grad_reduce = false;
  config.model.moe->pad_to_capacity = true;
  config.model.moe->router.num_groups = 3;
  config.optimizer.adam_beta1 = 1.5;
  const Status status = ValidateTrainConfig(config);
  ASSERT_THAT(status, FailsWith(ErrorKind::kUsage));
  EXPECT_GE(status.problems().size(), 7U);
  for (const Problem& problem : status.problems()) {
    EXPECT_NE(problem.hint, "") << problem.message;
  }
}

}  // namespace
}  // namespace ckpt

// What the engine promises beside the numbers: memory, counts of collectives, waits, frozen
// parameters, number types, errors.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <limits>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/forwarding_device.h"
#include "tests/testing/forwarding_ops.h"
#include "tests/testing/matchers.h"
#include "tests/trainer/step/training_run.h"
#include "trainer/comm/thread_comm.h"
#include "trainer/ops/cpu/host_ops.h"

namespace ckpt {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::RelativeDifference;
using testing::RunOptions;
using testing::SmallDeepSeek;
using testing::SmallMoe;
using testing::SmallRun;
using testing::Train;
using testing::TrainingRun;
using namespace trainer;  // NOLINT(google-build-using-namespace)

constexpr MeshConfig kHybrid = {.world_size = 8, .num_instances = 2, .expert_parallel = 2};
constexpr MeshConfig kHybridOuter = {
    .world_size = 8, .num_instances = 2, .expert_parallel = 2, .outer = OuterSharding::kOptim};

TrainConfig OnMesh(TrainConfig config, const MeshConfig& mesh) {
  config.mesh = mesh;
  return config;
}

// --- memory ---------------------------------------------------------------------------------------

void ExpectMemoryAsPlanned(const TrainConfig& config) {
  std::mutex mutex;
  const RunOptions options = {.inspect = [&](RankTrainer& trainer, Device& device) {
    const PlannedBytes planned = PlanBytes(trainer.params().plan(), NumMoments(config.optimizer));
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
  const Result<TrainingRun> run = Train(config, {});
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
    const Result<TrainingRun> run = Train(config, options);
    ASSERT_THAT(run, FailsWith(ErrorKind::kSystem));
    EXPECT_THAT(run.status().first().hint, HasSubstr("smaller micro-batches"));
  }
}

// --- collectives ----------------------------------------------------------------------------------

// Five layers and two slots, so that slots are fought over.
TrainConfig DeepRun() {
  ModelConfig model = SmallMoe();
  model.num_layers = 5;
  model.window_size.assign(5, 0);
  model.is_moe_layer = {false, true, true, true, true};
  return OnMesh(SmallRun(model, 12), {.world_size = 4});
}
constexpr std::int64_t kDeepLayers = 5;
constexpr std::int64_t kDeepMicroBatches = 3;

TEST(EngineScheduleTest, EveryUnitIsGatheredTwiceAndReducedOnceAMicroBatch) {
  TrainConfig config = DeepRun();
  config.poison_released = true;  // nothing is found again in a slot
  const RunOptions options = {.steps = 1, .inspect = [&](RankTrainer& trainer, Device&) {
                                const ParamStoreCounters& counters = trainer.params().counters();
                                // Layers forward and backward, embedding and head once.
                                EXPECT_EQ(counters.gathers,
                                          kDeepMicroBatches * (2 * kDeepLayers + 2));
                                EXPECT_EQ(counters.reduces, kDeepMicroBatches * (kDeepLayers + 2));
                                EXPECT_EQ(counters.late_reduces, 0);
                                EXPECT_EQ(counters.most_gathered_units, config.slots.weight_slots);
                              }};
  EXPECT_THAT(Train(config, options), IsOk());
}

TEST(EngineScheduleTest, WhatIsStillInASlotIsNotGatheredAgain) {
  const RunOptions options = {.steps = 1, .inspect = [&](RankTrainer& trainer, Device&) {
                                // Two units wait where the layers turn round, at the last and,
                                // between micro-batches, at the first; and the ends.
                                const std::int64_t turns = 2 * kDeepMicroBatches - 1;
                                EXPECT_EQ(trainer.params().counters().gathers,
                                          2 * kDeepMicroBatches * kDeepLayers - 2 * turns + 2);
                              }};
  EXPECT_THAT(Train(DeepRun(), options), IsOk());
}

// Units gathered further ahead are the same units.
TEST(EngineScheduleTest, AsManyUnitsAreWholeAsThePrefetchDepthNeeds) {
  TrainConfig config = DeepRun();
  const Result<TrainingRun> one_ahead = Train(config, {});
  ASSERT_THAT(one_ahead, IsOk());
  config.slots.weight_slots = 4;
  config.slots.prefetch_depth = 3;
  const RunOptions options = {
      .device = {.queues = QueueMode::kThreads, .delay_seed = 6, .reads_peers = true},
      .inspect = [](RankTrainer& trainer, Device&) {
        EXPECT_EQ(trainer.params().counters().most_gathered_units, 4);
      }};
  const Result<TrainingRun> three_ahead = Train(config, options);
  ASSERT_THAT(three_ahead, IsOk());
  EXPECT_TRUE(three_ahead->weights == one_ahead->weights);
}

TEST(EngineScheduleTest, ReplicasAreReducedOnceAStep) {
  const TrainConfig config = OnMesh(SmallRun(SmallMoe(), 24), kHybrid);
  const RunOptions options = {
      .steps = 1, .inspect = [&](RankTrainer& trainer, Device&) {
        const auto groups = static_cast<std::int64_t>(trainer.params().plan().groups.size());
        EXPECT_EQ(trainer.params().counters().late_reduces, groups);
      }};
  EXPECT_THAT(Train(config, options), IsOk());
}

// Tells for each piece of work of the queues of collectives whether it was enqueued in a batch.
class BatchDevice final : public testing::ForwardingDevice {
 public:
  struct Log {
    std::vector<int> batches;  // calls of each batch, without empty ones
    int outside = 0;           // calls outside of batches
  };

  BatchDevice(std::unique_ptr<Device> device, std::function<void(const Log&)> at_end)
      : ForwardingDevice(std::move(device)), at_end_(std::move(at_end)) {}
  ~BatchDevice() override { at_end_(log_); }

  std::unique_ptr<Queue> MakeQueue(std::string_view name) override {
    std::unique_ptr<Queue> queue = ForwardingDevice::MakeQueue(name);
    if (!name.starts_with("gather")) return queue;
    return std::make_unique<CountedQueue>(std::move(queue), *this);
  }
  void BeginBatch() override { calls_ = 0; }
  void EndBatch() override {
    if (calls_ > 0) log_.batches.push_back(calls_);
    calls_ = kNoBatch;
  }

 private:
  static constexpr int kNoBatch = -1;

  class CountedQueue final : public HostQueue {
   public:
    CountedQueue(std::unique_ptr<Queue> queue, BatchDevice& device)
        : HostQueue(false), device_(device), queue_(std::move(queue)) {}

    void Enqueue(std::function<Status()> work) override {
      ++(device_.calls_ == kNoBatch ? device_.log_.outside : device_.calls_);
      static_cast<HostQueue&>(*queue_).Enqueue(std::move(work));
    }
    Event Record() override { return queue_->Record(); }
    void Wait(const Event& event) override { queue_->Wait(event); }
    Status Synchronize() override { return queue_->Synchronize(); }
    Status Await(const Event& event) override { return queue_->Await(event); }

   private:
    BatchDevice& device_;
    const std::unique_ptr<Queue> queue_;
  };

  const std::function<void(const Log&)> at_end_;
  Log log_;
  int calls_ = kNoBatch;
};

// A unit has several flat arrays: dense ones, and in the second layer one of experts.
TEST(EngineScheduleTest, TheCallsOfAUnitAreOneBatch) {
  std::mutex mutex;
  const auto check = [&](const BatchDevice::Log& log) {
    const std::lock_guard lock(mutex);
    EXPECT_EQ(log.outside, 0);
    // The embedding, the layers, the head; backward finds both layers in their slots.
    EXPECT_THAT(log.batches, ::testing::ElementsAre(1, 3, 4, 1));
  };
  TrainConfig config = OnMesh(SmallRun(SmallMoe(), 4), {.world_size = 4});
  const RunOptions options = {.steps = 1, .wrap_device = [&](std::unique_ptr<Device> device) {
                                return std::make_unique<BatchDevice>(std::move(device), check);
                              }};
  EXPECT_THAT(Train(config, options), IsOk());
}

// --- waits ----------------------------------------------------------------------------------------

// Runs one piece of work of the queue of this name.
using Around = std::function<Status(std::string_view queue, const std::function<Status()>& work)>;

// Queues as they are, but for what stands around their work, and that one may forget to wait.
class AroundDevice final : public testing::ForwardingDevice {
 public:
  AroundDevice(std::unique_ptr<Device> device, Around around, bool forgets = false)
      : ForwardingDevice(std::move(device)), around_(std::move(around)), forgets_(forgets) {}

  std::unique_ptr<Queue> MakeQueue(std::string_view name) override {
    return std::make_unique<WrappedQueue>(ForwardingDevice::MakeQueue(name), std::string(name),
                                          around_, name == "compute" && forgets_);
  }

 private:
  class WrappedQueue final : public HostQueue {
   public:
    WrappedQueue(std::unique_ptr<Queue> queue, std::string name, Around around, bool forgets)
        : HostQueue(false),
          name_(std::move(name)),
          around_(std::move(around)),
          forgets_(forgets),
          queue_(std::move(queue)) {}

    void Enqueue(std::function<Status()> work) override {
      static_cast<HostQueue&>(*queue_).Enqueue(
          [this, work = std::move(work)] { return around_(name_, work); });
    }
    Event Record() override { return queue_->Record(); }
    void Wait(const Event& event) override {
      if (!forgets_) queue_->Wait(event);
    }
    Status Synchronize() override { return queue_->Synchronize(); }
    Status Await(const Event& event) override { return queue_->Await(event); }

   private:
    const std::string name_;
    const Around around_;
    const bool forgets_;
    const std::unique_ptr<Queue> queue_;  // last: its work uses the others
  };

  const Around around_;
  const bool forgets_;
};

RunOptions SlowGathers(bool forgets) {
  const Around slow = [](std::string_view queue, const std::function<Status()>& work) {
    if (queue == "gather") std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return work();
  };
  return {.device = {.queues = QueueMode::kThreads},
          .wrap_device = [slow, forgets](std::unique_ptr<Device> device) {
            return std::make_unique<AroundDevice>(std::move(device), slow, forgets);
          }};
}

// Between two steps of HFSDP, the slices of the last unit arrive only after a gather of the next
// step: a gather that waited for more than its own unit's slices would never run.
class LateSlices {
 public:
  // From here on, the next refresh is held back. `slices` are its gathers over replicas.
  void Arm(std::size_t slices) {
    const std::lock_guard lock(mutex_);
    num_slices_ = slices;
  }

  Status operator()(std::string_view queue, const std::function<Status()>& work) {
    if (queue == "gather outer") HoldBack();
    Status status = work();
    if (queue == "gather" || queue == "gather outer") {
      const std::lock_guard lock(mutex_);
      if (num_slices_ > 0) order_.emplace_back(queue);
      changed_.notify_all();
    }
    return status;
  }

  // Names of the queues of all gathers since Arm, in the order in which they ended.
  [[nodiscard]] std::vector<std::string> order() const {
    const std::lock_guard lock(mutex_);
    return order_;
  }
  [[nodiscard]] bool gave_up() const {
    const std::lock_guard lock(mutex_);
    return gave_up_;
  }

 private:
  void HoldBack() {
    std::unique_lock lock(mutex_);
    if (num_slices_ == 0) return;
    const auto gathers = [this] { return std::ranges::count(order_, "gather"); };
    if (++seen_slices_ == 1) gathers_before_ = gathers();
    if (seen_slices_ != num_slices_) return;
    gave_up_ = !changed_.wait_for(lock, std::chrono::seconds(20),
                                  [&] { return gathers() > gathers_before_; });
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t num_slices_ = 0;  // 0: not armed
  std::size_t seen_slices_ = 0;
  std::ptrdiff_t gathers_before_ = 0;
  std::vector<std::string> order_;
  bool gave_up_ = false;
};

TEST(EngineWaitTest, SlicesOfLaterUnitsDoNotHoldUpGathers) {
  for (const bool prefetches : {false, true}) {
    TrainConfig config = OnMesh(SmallRun(SmallMoe(), 8), kHybridOuter);
    config.overlap_param_gather = prefetches;
    const Status status = RunRanks(config.mesh.world_size, [&](HostGroup& world) -> Status {
      LateSlices late;
      AroundDevice device(MakeHostDevice({.queues = QueueMode::kThreads, .delay_seed = 5}),
                          std::ref(late));
      const auto ops = MakeHostOps({});
      CKPT_ASSIGN_OR_RETURN(
          const auto trainer,
          RankTrainer::Create(config, world, {.device = &device, .ops = ops.get()}));
      CKPT_RETURN_IF_ERROR(trainer->InitializeWeights());
      std::size_t num_slices = 0;
      for (const GroupPlan& group : trainer->params().plan().groups) {
        if (group.main.elems < group.part.elems) ++num_slices;
      }
      EXPECT_GT(num_slices, 1U);
      late.Arm(num_slices);
      const HostMicroBatch batch = {.tokens = {1, 2, 3}, .labels = {2, 3, 4}, .batch = 1, .seq = 3};
      CKPT_RETURN_IF_ERROR(trainer->Step({&batch, 1}).status());
      CKPT_RETURN_IF_ERROR(trainer->Step({&batch, 1}).status());
      CKPT_RETURN_IF_ERROR(trainer->params().Synchronize());

      EXPECT_FALSE(late.gave_up());
      // The first step's gathers, then its slices, the last of them behind gathers of the second.
      const std::vector<std::string> order = late.order();
      EXPECT_EQ(std::ranges::count(order, "gather outer"),
                static_cast<std::ptrdiff_t>(2 * num_slices));
      const auto first_slice = std::ranges::find(order, "gather outer");
      const auto next_gather = std::find(first_slice, order.end(), "gather");
      EXPECT_LT(std::count(first_slice, next_gather, "gather outer"),
                static_cast<std::ptrdiff_t>(num_slices));
      return OkStatus();
    });
    EXPECT_THAT(status, IsOk());
  }
}

TEST(EngineWaitTest, PoisonedSlotsChangeNothingAsLongAsEverybodyWaits) {
  TrainConfig config = OnMesh(SmallRun(SmallMoe(), 8), {.world_size = 2});
  const Result<TrainingRun> plain = Train(config, {});
  config.poison_released = true;
  const Result<TrainingRun> poisoned = Train(config, SlowGathers(false));
  ASSERT_THAT(plain, IsOk());
  ASSERT_THAT(poisoned, IsOk());
  EXPECT_TRUE(plain->weights == poisoned->weights);
}

TEST(EngineWaitTest, AMissingWaitShowsAsALossThatIsNotFinite) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the sanitizer ends the program at this very race";
#endif
  TrainConfig config = OnMesh(SmallRun(SmallMoe(), 8), {.world_size = 2});
  config.poison_released = true;
  EXPECT_THAT(Train(config, SlowGathers(true)), FailsWith(ErrorKind::kValueMismatch));
}

// --- frozen parameters and number types -----------------------------------------------------------

TEST(EngineTest, FrozenParametersStayAndOthersTrainAsBefore) {
  for (const MeshConfig& mesh :
       {MeshConfig{}, MeshConfig{.world_size = 4, .expert_parallel = 2}, kHybridOuter}) {
    TrainConfig config = OnMesh(SmallRun(SmallDeepSeek(), 8), mesh);
    config.clip_grad = 0;
    const Result<TrainingRun> start = Train(config, {.steps = 0});
    const Result<TrainingRun> all = Train(config, {.steps = 1});
    config.frozen = {"*.self_attention.*", "*.experts.linear_fc1.weight3", "embedding.*"};
    const Result<TrainingRun> some = Train(config, {.steps = 1});
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
  const Result<TrainingRun> exact = Train(config, {});
  config.precision.compute = DType::kBfloat16;
  const Result<TrainingRun> one = Train(config, {});
  const Result<TrainingRun> hybrid = Train(OnMesh(config, kHybridOuter), {});
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
  const Result<TrainingRun> exact = Train(config, {});
  ASSERT_THAT(exact, IsOk());
  config.precision.grad_comm = DType::kBfloat16;
  for (const MeshConfig& mesh : {kHybrid, kHybridOuter}) {
    for (const Sharding sharding : {Sharding::kOptim, Sharding::kOptimGradsParams}) {
      TrainConfig narrow = OnMesh(config, mesh);
      if (mesh.outer == OuterSharding::kNoShard) narrow.mesh.sharding = sharding;
      const Result<TrainingRun> run = Train(narrow, {});
      ASSERT_THAT(run, IsOk());
      EXPECT_LT(RelativeDifference(run->first_gradients, exact->first_gradients), 0.02);
      EXPECT_GT(RelativeDifference(run->first_gradients, exact->first_gradients), 0);
    }
  }
}

// --- errors ---------------------------------------------------------------------------------------

// Every rank has as many tokens, and a rank's experts get more or less of them than the mean.
TEST(EngineTest, RowsThatDoNotFitStopEveryRankAndNameTheSetting) {
  for (const Dispatcher dispatcher : {Dispatcher::kAllToAll, Dispatcher::kAllGather}) {
    TrainConfig config = OnMesh(SmallRun(SmallMoe(), 4), {.world_size = 4, .expert_parallel = 2});
    config.dispatcher = dispatcher;
    const Result<TrainingRun> unlimited = Train(config, {});
    ASSERT_THAT(unlimited, IsOk());
    config.rank_capacity_factor = 2;  // all tokens
    const Result<TrainingRun> enough = Train(config, {});
    ASSERT_THAT(enough, IsOk());
    EXPECT_EQ(enough->weights, unlimited->weights);

    config.rank_capacity_factor = 1;
    const Result<TrainingRun> run = Train(config, {});
    ASSERT_THAT(run, FailsWith(ErrorKind::kUsage));
    EXPECT_THAT(run.status().ToString(), HasSubstr("at most moe_expert_rank_capacity_factor=1"));
  }
}

// What was routed stays, although the memory of the layer was taken back.
TEST(EngineTest, RecomputationRoutesNoTokenAgain) {
  TrainConfig config =
      OnMesh(SmallRun(SmallDeepSeek(), 4), {.world_size = 2, .expert_parallel = 2});
  const Result<TrainingRun> kept = Train(config, {});
  ASSERT_THAT(kept, IsOk());
  config.recompute = true;
  const Result<TrainingRun> recomputed = Train(config, {});
  ASSERT_THAT(recomputed, IsOk());
  EXPECT_EQ(recomputed->weights, kept->weights);
}

TEST(EngineTest, ALossThatIsNotFiniteStopsEveryRankAndUpdatesNothing) {
  TrainConfig config = OnMesh(SmallRun(SmallMoe(), 4), {.world_size = 4});
  config.schedule.max_lr = 1e30;  // the second step cannot end well
  const Result<TrainingRun> run = Train(config, {.steps = 3});
  ASSERT_THAT(run, FailsWith(ErrorKind::kValueMismatch));
  EXPECT_THAT(run.status().ToString(), HasSubstr("not finite"));
}

class FloatsOnlyOps final : public testing::ForwardingOps {
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

// --- steps in flight ------------------------------------------------------------------------------

constexpr std::int32_t kPoison = 7;

HostMicroBatch BatchOf(std::int32_t token) {
  return {.tokens = {1, token, 3}, .labels = {2, 3, 4}, .batch = 1, .seq = 3};
}

// Weights as they are drawn, but the poison's embedding is `value`.
Status DrawWeights(RankTrainer& trainer, float value) {
  CKPT_RETURN_IF_ERROR(trainer.InitializeWeights());
  for (const MainArrays& main : trainer.params().mains()) {
    for (const ParamPiece& piece : main.pieces) {
      if (piece.spec->name != "embedding.word_embeddings.weight") continue;
      const std::int64_t row = kPoison - piece.row_begin;
      if (row < 0 || row >= piece.rows) continue;
      const Tensor poisoned =
          main.weights.Rows(piece.main_offset + row * piece.row_elems, piece.row_elems);
      std::fill_n(poisoned.as<float>(), piece.row_elems, value);
    }
  }
  trainer.params().WeightsChanged();
  return trainer.params().Synchronize();
}

std::vector<float> WeightsOf(RankTrainer& trainer) {
  std::vector<float> weights;
  for (const MainArrays& main : trainer.params().mains()) {
    const auto* values = main.weights.as<const float>();
    weights.insert(weights.end(), values, values + main.weights.num_elems());
  }
  return weights;
}

// Runs `body` on the ranks of a run whose queues have threads, with a poisoned embedding.
Status RunPoisoned(const std::function<Status(RankTrainer&)>& body) {
  TrainConfig config = OnMesh(SmallRun(SmallDeepSeek(), 2), {.world_size = 2});
  return RunRanks(config.mesh.world_size, [&](HostGroup& world) -> Status {
    const auto device = MakeHostDevice({.queues = QueueMode::kThreads, .delay_seed = 3});
    const auto ops = MakeHostOps({});
    CKPT_ASSIGN_OR_RETURN(
        const auto trainer,
        RankTrainer::Create(config, world, {.device = device.get(), .ops = ops.get()}));
    CKPT_RETURN_IF_ERROR(DrawWeights(*trainer, std::numeric_limits<float>::quiet_NaN()));
    return body(*trainer);
  });
}

TEST(StepsInFlightTest, AreTheSameAsOneAfterTheOther) {
  const Status status = RunPoisoned([](RankTrainer& trainer) -> Status {
    EXPECT_EQ(trainer.max_in_flight(), 2);
    const std::vector<float> start = WeightsOf(trainer);
    std::vector<double> want;
    for (const std::int32_t token : {1, 2, 3, 4}) {
      const HostMicroBatch batch = BatchOf(token);
      CKPT_ASSIGN_OR_RETURN(const StepReport report, trainer.Step({&batch, 1}));
      want.push_back(report.loss);
    }
    const std::vector<float> trained = WeightsOf(trainer);

    CKPT_RETURN_IF_ERROR(DrawWeights(trainer, std::numeric_limits<float>::quiet_NaN()));
    for (int moment = 0; moment < 2; ++moment) {
      CKPT_RETURN_IF_ERROR(trainer.SetMoment(
          moment, [](const ParamSpec&, std::int64_t, std::int64_t, std::span<float> values) {
            std::ranges::fill(values, 0.0F);
            return OkStatus();
          }));
    }
    for (const ReplicatedBuffer& buffer : trainer.model().buffers()) {
      std::fill_n(buffer.values.as<float>(), buffer.values.num_elems(), 0.0F);
    }
    trainer.optimizer().set_steps(0);
    std::vector<double> have;
    const auto collect = [&]() -> Status {
      CKPT_ASSIGN_OR_RETURN(const StepReport report, trainer.Collect());
      EXPECT_EQ(report.step, static_cast<std::int64_t>(have.size()) + 1);
      have.push_back(report.loss);
      return OkStatus();
    };
    for (const std::int32_t token : {1, 2, 3, 4}) {
      const HostMicroBatch batch = BatchOf(token);
      CKPT_RETURN_IF_ERROR(trainer.Enqueue({&batch, 1}, {}));
      if (trainer.num_in_flight() == 2) CKPT_RETURN_IF_ERROR(collect());
    }
    CKPT_RETURN_IF_ERROR(collect());
    CKPT_RETURN_IF_ERROR(trainer.params().Synchronize());
    EXPECT_EQ(have, want);
    EXPECT_EQ(
        std::memcmp(trained.data(), WeightsOf(trainer).data(), trained.size() * sizeof(float)), 0);
    EXPECT_NE(std::memcmp(trained.data(), start.data(), trained.size() * sizeof(float)), 0);
    return OkStatus();
  });
  EXPECT_THAT(status, IsOk());
}

TEST(StepsInFlightTest, AStepBehindAFailedOneChangesNothing) {
  const Status status = RunPoisoned([](RankTrainer& trainer) -> Status {
    const HostMicroBatch good = BatchOf(1);
    const HostMicroBatch bad = BatchOf(kPoison);
    CKPT_RETURN_IF_ERROR(trainer.Step({&good, 1}).status());
    CKPT_RETURN_IF_ERROR(trainer.params().Synchronize());
    const std::vector<float> weights = WeightsOf(trainer);
    const Tensor& bias = trainer.model().buffers().front().values;
    const std::vector<float> biases(bias.as<float>(), bias.as<float>() + bias.num_elems());

    CKPT_RETURN_IF_ERROR(trainer.Enqueue({&bad, 1}, {}));
    CKPT_RETURN_IF_ERROR(trainer.Enqueue({&good, 1}, {}));
    EXPECT_THAT(trainer.Collect().status(), FailsWith(ErrorKind::kValueMismatch));
    EXPECT_EQ(trainer.num_in_flight(), 0);
    CKPT_RETURN_IF_ERROR(trainer.params().Synchronize());
    EXPECT_EQ(trainer.optimizer().steps(), 1);
    EXPECT_EQ(
        std::memcmp(weights.data(), WeightsOf(trainer).data(), weights.size() * sizeof(float)), 0);
    EXPECT_TRUE(std::ranges::equal(biases, std::span(bias.as<float>(), biases.size())));

    // The failure is over: the next step counts.
    CKPT_ASSIGN_OR_RETURN(const StepReport report, trainer.Step({&good, 1}));
    EXPECT_EQ(report.step, 2);
    return OkStatus();
  });
  EXPECT_THAT(status, IsOk());
}

TEST(StepsInFlightTest, ACopyOfTheStateHasTheValuesOfItsTime) {
  const Around slow = [](std::string_view queue, const std::function<Status()>& work) {
    if (queue == "copy") std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return work();
  };
  const TrainConfig config = OnMesh(SmallRun(SmallDeepSeek(), 2), {.world_size = 2});
  const Status status = RunRanks(config.mesh.world_size, [&](HostGroup& world) -> Status {
    AroundDevice device(MakeHostDevice({.queues = QueueMode::kThreads}), slow);
    const auto ops = MakeHostOps({});
    CKPT_ASSIGN_OR_RETURN(
        const auto trainer,
        RankTrainer::Create(config, world, {.device = &device, .ops = ops.get()}));
    CKPT_RETURN_IF_ERROR(trainer->InitializeWeights());
    const HostMicroBatch batch = BatchOf(1);
    CKPT_RETURN_IF_ERROR(trainer->Step({&batch, 1}).status());
    // All elements of a part, in the order of the pieces.
    std::vector<std::vector<float>> parts;
    const auto read = [&](bool waits) -> Status {
      std::list<std::vector<float>> pieces;
      const auto place = [&](const ParamPiece& piece) {
        pieces.emplace_back(static_cast<std::size_t>(piece.rows * piece.row_elems));
        return std::as_writable_bytes(std::span(pieces.back()));
      };
      CKPT_RETURN_IF_ERROR(trainer->ReadWeights(place));
      CKPT_RETURN_IF_ERROR(trainer->ReadMoment(1, place));
      if (!waits) CKPT_RETURN_IF_ERROR(trainer->Enqueue({&batch, 1}, {}));
      CKPT_RETURN_IF_ERROR(trainer->AwaitReads());
      std::vector<float>& all = parts.emplace_back();
      for (const std::vector<float>& piece : pieces) {
        all.insert(all.end(), piece.begin(), piece.end());
      }
      return OkStatus();
    };
    CKPT_RETURN_IF_ERROR(read(true));
    CKPT_RETURN_IF_ERROR(read(false));
    CKPT_RETURN_IF_ERROR(trainer->Collect().status());
    CKPT_RETURN_IF_ERROR(read(true));
    EXPECT_TRUE(parts[1] == parts[0]);
    EXPECT_FALSE(parts[2] == parts[0]);
    return OkStatus();
  });
  EXPECT_THAT(status, IsOk());
}

TEST(StepsInFlightTest, AVoteOfOneRankReachesAll) {
  std::mutex mutex;
  int rank = 0;
  const Status status = RunPoisoned([&](RankTrainer& trainer) -> Status {
    bool votes = false;
    {
      const std::lock_guard lock(mutex);
      votes = rank++ == 0;
    }
    const HostMicroBatch batch = BatchOf(1);
    CKPT_RETURN_IF_ERROR(trainer.Enqueue({&batch, 1}, [] { return false; }));
    CKPT_RETURN_IF_ERROR(trainer.Enqueue({&batch, 1}, [votes] { return votes; }));
    CKPT_ASSIGN_OR_RETURN(const StepReport first, trainer.Collect());
    CKPT_ASSIGN_OR_RETURN(const StepReport second, trainer.Collect());
    EXPECT_FALSE(first.is_stop_asked);
    EXPECT_TRUE(second.is_stop_asked);
    return OkStatus();
  });
  EXPECT_THAT(status, IsOk());
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

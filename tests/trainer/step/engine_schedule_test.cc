// When the engine gathers, reduces and waits: the order and the number of collectives, and that no
// wait is missing or too long.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/forwarding_device.h"
#include "tests/testing/forwarding_queue.h"
#include "tests/testing/matchers.h"
#include "tests/trainer/step/around_device.h"
#include "tests/trainer/step/trained_run.h"
#include "trainer/comm/thread_comm.h"
#include "trainer/ops/cpu/host_ops.h"

namespace ckpt {
namespace {

using testing::Around;
using testing::AroundDevice;
using testing::FailsWith;
using testing::IsOk;
using testing::kHybrid;
using testing::kHybridOuter;
using testing::OnMesh;
using testing::RunOptions;
using testing::SmallMoe;
using testing::SmallRun;
using testing::Train;
using testing::TrainedRun;
using namespace trainer;  // NOLINT(google-build-using-namespace)

// --- collectives ---------------------------------------------------------------------------------

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
  const Result<TrainedRun> one_ahead = Train(config, {});
  ASSERT_THAT(one_ahead, IsOk());
  config.slots.weight_slots = 4;
  config.slots.prefetch_depth = 3;
  const RunOptions options = {
      .device = {.queues = QueueMode::kThreads, .delay_seed = 6, .reads_peers = true},
      .inspect = [](RankTrainer& trainer, Device&) {
        EXPECT_EQ(trainer.params().counters().most_gathered_units, 4);
      }};
  const Result<TrainedRun> three_ahead = Train(config, options);
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

// Notes what the host asks of the queues, in its order.
class NotedQueues final : public testing::ForwardingDevice {
 public:
  NotedQueues(std::unique_ptr<Device> target, std::vector<std::string>& log)
      : ForwardingDevice(std::move(target)), log_(log) {}

  std::unique_ptr<Queue> MakeQueue(std::string_view name) override {
    return std::make_unique<NotedQueue>(ForwardingDevice::MakeQueue(name), std::string(name), log_);
  }

 private:
  class NotedQueue final : public testing::ForwardingQueue {
   public:
    NotedQueue(std::unique_ptr<Queue> target, std::string name, std::vector<std::string>& log)
        : ForwardingQueue(std::move(target)), name_(std::move(name)), log_(log) {}

    void Enqueue(std::function<Status()> work) override {
      log_.push_back(name_);
      ForwardingQueue::Enqueue(std::move(work));
    }
    void Wait(const Event& event) override {
      log_.push_back(name_ + " waits");
      ForwardingQueue::Wait(event);
    }

   private:
    const std::string name_;
    std::vector<std::string>& log_;
  };

  std::vector<std::string>& log_;
};

// What rank 0 asks of its queues in two steps.
std::vector<std::string> AskedOfQueues(QueueMode queues, std::optional<bool> overlap_grad_reduce,
                                       std::optional<bool> overlap_param_gather) {
  TrainConfig config = DeepRun();
  config.overlap_grad_reduce = overlap_grad_reduce;
  config.overlap_param_gather = overlap_param_gather;
  std::vector<std::string> logs[4];
  const Status status = RunRanks(config.mesh.world_size, [&](HostGroup& world) {
    std::vector<std::string>& log = logs[world.rank()];
    return testing::TrainOnRank(config, world,
                                {.device = {.queues = queues},
                                 .wrap_device =
                                     [&log](std::unique_ptr<Device> device) {
                                       return std::make_unique<NotedQueues>(std::move(device), log);
                                     }})
        .status();
  });
  EXPECT_THAT(status, IsOk());
  return logs[0];
}

// What the settings leave open, the device decides: one that works while the host goes on, as a
// GPU, gathers ahead and does not wait for a reduction before it computes on.
TEST(EngineScheduleTest, ADeviceThatWorksBesideTheHostOverlapsByDefault) {
  for (const QueueMode queues : {QueueMode::kThreads, QueueMode::kInline}) {
    const bool is_asynchronous = MakeHostDevice({.queues = queues})->is_asynchronous();
    EXPECT_EQ(is_asynchronous, queues == QueueMode::kThreads);
    const auto all = AskedOfQueues(queues, true, true);
    const auto reduces = AskedOfQueues(queues, true, false);
    const auto none = AskedOfQueues(queues, false, false);
    EXPECT_NE(all, reduces);
    EXPECT_NE(reduces, none);
    EXPECT_TRUE(AskedOfQueues(queues, {}, {}) == (is_asynchronous ? all : none));
    // Gathers do as reductions where only these are set.
    EXPECT_TRUE(AskedOfQueues(queues, true, {}) == all);
    EXPECT_TRUE(AskedOfQueues(queues, false, {}) == none);
  }
}

// --- waits ---------------------------------------------------------------------------------------

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
  const Result<TrainedRun> plain = Train(config, {});
  config.poison_released = true;
  const Result<TrainedRun> poisoned = Train(config, SlowGathers(false));
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

}  // namespace
}  // namespace ckpt

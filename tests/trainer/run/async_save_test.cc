// What an asynchronous save keeps training from, on a device that works while the host goes on.
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "converters/verbs/training_state.h"
#include "core/io/memory_storage.h"
#include "formats/megatron/root.h"
#include "tests/testing/forwarding_device.h"
#include "tests/testing/forwarding_queue.h"
#include "tests/testing/matchers.h"
#include "tests/trainer/run/same_tokens.h"
#include "tests/trainer/run/small_session.h"
#include "trainer/comm/thread_comm.h"
#include "trainer/data/batch_reader.h"
#include "trainer/ops/cpu/host_ops.h"
#include "trainer/run/run_checkpoints.h"
#include "trainer/run/train_loop.h"

namespace ckpt::train {
namespace {

using ::testing::Each;
using testing::IsOk;
using testing::SameTokens;
using ::testing::SizeIs;
using testing::SmallSessions;
using testing::TinySettings;
using testing::With;

constexpr int kSavingRanks = 2;
constexpr int kTrainedSteps = 4;
const Path kSavedRoot = "/runs/a";

// Closed at first.
class Gate {
 public:
  void Open() {
    {
      const std::lock_guard lock(mutex_);
      is_open_ = true;
    }
    changed_.notify_all();
  }
  // Errors: kSystem (nobody opens it).
  Status Pass() {
    std::unique_lock lock(mutex_);
    const bool opened = changed_.wait_for(lock, std::chrono::seconds(30), [&] { return is_open_; });
    return opened ? OkStatus() : Error(ErrorKind::kSystem, "training waits for the copy");
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = false;
};

// Queues with threads. Copies of the state stop at a gate;
// what the rank's thread waits for is noted.
class GatedDevice final : public testing::ForwardingDevice {
 public:
  GatedDevice() : ForwardingDevice(trainer::MakeHostDevice({trainer::QueueMode::kThreads})) {}

  std::unique_ptr<Queue> MakeQueue(std::string_view name) override {
    return std::make_unique<NotedQueue>(ForwardingDevice::MakeQueue(name), std::string(name),
                                        *this);
  }
  Result<PinnedBuffer> AllocatePinned(std::uint64_t size_bytes) override {
    pinned_bytes_ += size_bytes;
    return ForwardingDevice::AllocatePinned(size_bytes);
  }

  [[nodiscard]] Gate& gate() { return gate_; }
  [[nodiscard]] std::uint64_t pinned_bytes() const { return pinned_bytes_; }
  // The queues that the rank's thread waited for since the last call.
  std::vector<std::string> TakeWaits() { return std::exchange(waits_, {}); }

 private:
  class NotedQueue final : public testing::ForwardingQueue {
   public:
    NotedQueue(std::unique_ptr<Queue> target, std::string name, GatedDevice& device)
        : ForwardingQueue(std::move(target)), name_(std::move(name)), device_(device) {}
    ~NotedQueue() override { Finish(); }

    void Enqueue(std::function<Status()> work) override {
      if (name_ != "copy") return ForwardingQueue::Enqueue(std::move(work));
      ForwardingQueue::Enqueue([this, work = std::move(work)]() -> Status {
        CKPT_RETURN_IF_ERROR(device_.gate_.Pass());
        return work();
      });
    }
    Status Synchronize() override {
      device_.Note(name_);
      return ForwardingQueue::Synchronize();
    }
    Status Await(const trainer::Event& event) override {
      device_.Note(name_);
      return ForwardingQueue::Await(event);
    }

   private:
    const std::string name_;
    GatedDevice& device_;
  };

  void Note(const std::string& queue) {
    if (std::this_thread::get_id() == rank_thread_) waits_.push_back(queue);
  }

  Gate gate_;
  const std::thread::id rank_thread_ = std::this_thread::get_id();
  std::vector<std::string> waits_;
  std::uint64_t pinned_bytes_ = 0;
};

// A rank's loop that saves behind every second step. `on_step`: of the steps,
// with what trains them.
Status Train(const SmallSessions& sessions, Storage& storage, trainer::HostGroup& world,
             trainer::Device& device, const CheckpointSettings& settings,
             const std::function<void(std::int64_t step, trainer::RankTrainer&)>& on_step) {
  const RunConfig& run = sessions.run();
  const auto ops = trainer::MakeHostOps({});
  CKPT_ASSIGN_OR_RETURN(
      const auto trainer,
      trainer::RankTrainer::Create(run.train, world, {.device = &device, .ops = ops.get()}));
  CKPT_RETURN_IF_ERROR(trainer->InitializeWeights());
  CKPT_ASSIGN_OR_RETURN(const auto saving, world.Separate());
  RunCheckpoints checkpoints(storage, settings, run, *trainer, *saving, /*threads=*/1, {});
  CKPT_ASSIGN_OR_RETURN(
      const auto batches,
      trainer::BatchReader::Create(std::make_shared<SameTokens>(), run.train, world.rank()));
  LoopSettings loop_settings = run.loop;
  loop_settings.train_iters = kTrainedSteps;
  TrainLoop loop({.settings = loop_settings,
                  .checkpoint_settings = settings,
                  .trainer = *trainer,
                  .checkpoints = checkpoints,
                  .world = world,
                  .batches = batches,
                  .is_stop_asked = [] { return false; },
                  .on_step = [&](const StepMetrics& step) { on_step(step.step, *trainer); }},
                 {});
  return loop.Run().status();
}

CheckpointSettings Saves(bool in_background, bool with_proof) {
  CheckpointSettings settings;
  settings.save = kSavedRoot;
  settings.save_interval = 2;
  settings.async_save = in_background;
  settings.save_proof = with_proof;
  return settings;
}

class AsyncSaveTest : public ::testing::TestWithParam<bool> {
 protected:
  // What the checkpoint of step 2 says of itself.
  static OwnFacts FactsOf(Storage& storage) {
    OpenModelOptions padded;
    padded.with_vocabulary_padding = true;
    const auto saved = OpenTrainingState(storage, kSavedRoot / megatron::IterationName(2), padded);
    EXPECT_THAT(saved, IsOk());
    return saved.ok() ? saved->facts : OwnFacts();
  }
};
INSTANTIATE_TEST_SUITE_P(Saves, AsyncSaveTest, ::testing::Bool(), [](const auto& test) {
  return std::string(test.param ? "WithProof" : "WithoutProof");
});

TEST_P(AsyncSaveTest, TheNextStepIsEnqueuedBeforeTheStateIsCopied) {
  const auto storage = MakeMemoryStorage();
  const auto sessions = SmallSessions::Create(*storage, TinySettings(), kSavingRanks);
  ASSERT_THAT(sessions, IsOk());
  const CheckpointSettings settings = Saves(/*in_background=*/true, GetParam());
  const Status trained = trainer::RunRanks(kSavingRanks, [&](trainer::HostGroup& world) -> Status {
    GatedDevice device;
    std::uint64_t pinned_before = 0;
    const auto on_step = [&](std::int64_t step, trainer::RankTrainer& trainer) {
      const std::vector<std::string> waits = device.TakeWaits();
      if (step == 1) pinned_before = device.pinned_bytes();
      // For the report of the step alone, also where a copy is taken behind it.
      if (step == 2 || step == 3) {
        EXPECT_THAT(waits, ::testing::ElementsAre("compute")) << step;
      }
      if (step != 2) return;
      EXPECT_EQ(trainer.num_in_flight(), 2);
      device.gate().Open();
    };
    CKPT_RETURN_IF_ERROR(Train(*sessions, *storage, world, device, settings, on_step));
    // Two saves have used what was there before the first step.
    EXPECT_EQ(device.pinned_bytes(), pinned_before);
    return OkStatus();
  });
  ASSERT_THAT(trained, IsOk());
  const OwnFacts facts = FactsOf(*storage);

  const auto waiting = MakeMemoryStorage();
  const Status again = trainer::RunRanks(kSavingRanks, [&](trainer::HostGroup& world) {
    const auto device = trainer::MakeHostDevice({});
    return Train(*sessions, *waiting, world, *device, Saves(false, GetParam()),
                 [](std::int64_t, trainer::RankTrainer&) {});
  });
  ASSERT_THAT(again, IsOk());
  EXPECT_EQ(facts.state_digest, FactsOf(*waiting).state_digest);
  EXPECT_EQ(facts.next_loss, FactsOf(*waiting).next_loss);
  EXPECT_EQ(facts.next_loss.has_value(), GetParam());
}

// The host's memory for copies is what `explain` says.
TEST(AsyncSaveMemoryTest, IsWhatWasPredicted) {
  const auto storage = MakeMemoryStorage();
  for (const int ranks : {1, 3}) {
    const auto sessions = SmallSessions::Create(*storage, TinySettings(), ranks);
    ASSERT_THAT(sessions, IsOk());
    const CheckpointSettings settings = Saves(/*in_background=*/true, /*with_proof=*/true);
    const auto predicted = StagedBytes(sessions->run(), settings);
    ASSERT_THAT(predicted, IsOk());
    const Status prepared = trainer::RunRanks(ranks, [&](trainer::HostGroup& world) -> Status {
      GatedDevice device;
      const auto ops = trainer::MakeHostOps({});
      CKPT_ASSIGN_OR_RETURN(const auto trainer,
                            trainer::RankTrainer::Create(sessions->run().train, world,
                                                         {.device = &device, .ops = ops.get()}));
      CKPT_RETURN_IF_ERROR(trainer->InitializeWeights());
      RunCheckpoints checkpoints(*storage, settings, sessions->run(), *trainer, world,
                                 /*threads=*/1, {});
      const std::uint64_t before = device.pinned_bytes();
      CKPT_RETURN_IF_ERROR(checkpoints.Prepare({}, kTrainedSteps));
      EXPECT_EQ(device.pinned_bytes() - before,
                (*predicted)[static_cast<std::size_t>(world.rank())]);
      return OkStatus();
    });
    EXPECT_THAT(prepared, IsOk());
  }
}

}  // namespace
}  // namespace ckpt::train

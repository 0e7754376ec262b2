// A failure that NCCL reports when it has returned from the call. Needs no GPU, and no NCCL.
#include "trainer/device/cuda/internal/nccl_watchdog.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/matchers.h"
#include "trainer/comm/call_track.h"
#include "trainer/comm/thread_comm.h"
#include "trainer/device/cuda/cuda_device.h"

namespace ckpt::trainer {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using testing::FailsWith;
using ::testing::HasSubstr;

constexpr int kRanks = 3;

ncclComm_t CommunicatorOf(int rank) {
  return reinterpret_cast<ncclComm_t>(static_cast<std::uintptr_t>(rank) + 1);
}

// What NCCL says of the last rank's communicator.
struct Failure {
  ncclResult_t found = ncclSuccess;  // by the question
  ncclResult_t asked = ncclSuccess;  // of the question itself
};
std::atomic<Failure> failure;

NcclLibrary FakeNccl() {
  NcclLibrary nccl;
  nccl.async_error = [](ncclComm_t communicator, ncclResult_t* code) {
    const bool is_last = communicator == CommunicatorOf(kRanks - 1);
    const Failure now = is_last ? failure.load() : Failure();
    *code = is_last ? now.found : ncclInProgress;  // which is not a failure
    return now.asked;
  };
  nccl.error_string = [](ncclResult_t code) {
    return code == ncclRemoteError ? "remote process exited" : "another error";
  };
  nccl.last_error = [](ncclComm_t) { return "the link is down"; };
  return nccl;
}

// What each rank's waiting ends with when the last one fails so.
std::vector<std::string> WhatRanksSay(bool is_under_way, Failure then) {
  failure = Failure();
  const NcclLibrary nccl = FakeNccl();
  std::vector<std::string> said(kRanks);
  const Status status = RunRanks(kRanks, [&](HostGroup& world) -> Status {
    const bool is_last = world.rank() + 1 == world.size();
    CKPT_ASSIGN_OR_RETURN(const std::unique_ptr<HostGroup> group, world.Split(0, world.rank()));
    const auto track = std::make_shared<CallTrack>("nccl", std::vector<int>{0, 1, 2});
    NcclWatchdog watchdog;
    watchdog.Add(nccl, CommunicatorOf(world.rank()), *group, track);
    if (is_under_way) track->Begin("an all-gather", 4000);
    CKPT_RETURN_IF_ERROR(world.Barrier());
    if (is_last) failure = then;
    // The last rank and the others wait for each other.
    const Status ended = is_last ? group->Barrier() : world.Barrier();
    said[static_cast<std::size_t>(world.rank())] = ended.ToString();
    watchdog.Remove(CommunicatorOf(world.rank()));
    return ended;
  });
  EXPECT_THAT(status, FailsWith(ErrorKind::kCancelled));
  return said;
}

TEST(NcclWatchdogTest, AFailureEndsEveryRankWithTheNameOfTheCall) {
  EXPECT_THAT(WhatRanksSay(true, {.found = ncclRemoteError}),
              Each(AllOf(HasSubstr("NCCL failed"),
                         HasSubstr("an all-gather of 4000 bytes, call 1 of a group of 3 ranks"),
                         HasSubstr("remote process exited: the link is down"))));
}

TEST(NcclWatchdogTest, AFailureBetweenCallsEndsEveryRank) {
  EXPECT_THAT(WhatRanksSay(false, {.found = ncclRemoteError}),
              Each(AllOf(HasSubstr("expected NCCL to succeed"),
                         HasSubstr("remote process exited: the link is down"))));
}

TEST(NcclWatchdogTest, AQuestionThatFailsIsAFailure) {
  EXPECT_THAT(WhatRanksSay(true, {.asked = ncclInvalidArgument}),
              Each(AllOf(HasSubstr("an all-gather of 4000 bytes"), HasSubstr("another error"))));
}

// Makes the Abort of its group take until MayEnd.
class SlowToCancel final : public RankShared {
 public:
  void Cancel(const Status& /*why*/) override {
    if (num_calls_++ > 0) return;
    begun_.set_value();
    may_end_.get_future().wait();
    has_ended_ = true;
  }
  void AwaitBegin() { begun_.get_future().wait(); }
  void MayEnd() { may_end_.set_value(); }
  [[nodiscard]] bool has_ended() const { return has_ended_; }

 private:
  std::atomic<int> num_calls_ = 0;
  std::promise<void> begun_;
  std::promise<void> may_end_;
  std::atomic<bool> has_ended_ = false;
};

TEST(NcclWatchdogTest, AnAbortBlocksNobodyButTheRemovalOfItsGroup) {
  failure = Failure();
  const NcclLibrary nccl = FakeNccl();
  const std::vector<std::unique_ptr<HostGroup>> worlds = MakeThreadWorld(1);
  const auto slow = std::make_shared<SlowToCancel>();
  ASSERT_THAT(worlds.front()->Share(slow), testing::IsOk());
  const auto track = std::make_shared<CallTrack>("nccl", std::vector<int>{0});
  const ncclComm_t failing = CommunicatorOf(kRanks - 1);
  NcclWatchdog watchdog;
  watchdog.Add(nccl, failing, *worlds.front(), track);
  failure = {.found = ncclRemoteError};
  slow->AwaitBegin();
  watchdog.Add(nccl, CommunicatorOf(0), *worlds.front(), track);
  watchdog.Remove(CommunicatorOf(0));
  const std::jthread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    slow->MayEnd();
  });
  watchdog.Remove(failing);
  EXPECT_TRUE(slow->has_ended());
}

TEST(NcclWatchdogTest, ACallThatCannotBeWatchedIsAnError) {
  if (NumCudaDevices() > 0) GTEST_SKIP() << "a GPU watches it";
  failure = Failure();
  const NcclLibrary nccl = FakeNccl();
  const std::vector<std::unique_ptr<HostGroup>> worlds = MakeThreadWorld(1);
  const auto track = std::make_shared<CallTrack>("nccl", std::vector<int>{0});
  NcclWatchdog watchdog;
  watchdog.Add(nccl, CommunicatorOf(0), *worlds.front(), track);
  EXPECT_THAT(watchdog.Watch(CommunicatorOf(0), "an all-gather", 4000, nullptr),
              FailsWith(ErrorKind::kSystem));
  EXPECT_FALSE(track->First());
  watchdog.Remove(CommunicatorOf(0));
}

}  // namespace
}  // namespace ckpt::trainer

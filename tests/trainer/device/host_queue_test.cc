// Order, events and failures of host queues.
#include <latch>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>

#include "tests/testing/matchers.h"
#include "trainer/device/cpu/host_device.h"

namespace ckpt::trainer {
namespace {

using testing::FailsWith;
using testing::IsOk;

HostQueue& HostOf(const std::unique_ptr<Queue>& queue) { return static_cast<HostQueue&>(*queue); }

Status DiskIsFull() { return Error(ErrorKind::kNoSpace, "the disk is full"); }

class HostQueueTest : public ::testing::TestWithParam<QueueMode> {
 protected:
  std::unique_ptr<Device> device_ = MakeHostDevice({.queues = GetParam(), .delay_seed = 11});
  std::unique_ptr<Queue> queue_ = device_->MakeQueue("a name longer than the system takes");
};

INSTANTIATE_TEST_SUITE_P(Modes, HostQueueTest,
                         ::testing::Values(QueueMode::kInline, QueueMode::kThreads),
                         [](const auto& test) {
                           return std::string(test.param == QueueMode::kInline ? "Inline"
                                                                               : "Threads");
                         });

TEST_P(HostQueueTest, RunsWorkInOrder) {
  std::vector<int> ran, expected;
  for (int i = 0; i < 200; ++i) {
    RunOn(*queue_, [&ran, i] { ran.push_back(i); });
    expected.push_back(i);
  }
  EXPECT_THAT(queue_->Synchronize(), IsOk());
  EXPECT_EQ(ran, expected);
  EXPECT_EQ(HostOf(queue_).is_inline(), GetParam() == QueueMode::kInline);
}

// Under ThreadSanitizer a queue that did not wait is a data race.
TEST_P(HostQueueTest, WaitOrdersWorkAcrossQueues) {
  const auto other = device_->MakeQueue("other");
  int value = 0;
  for (int i = 0; i < 100; ++i) {
    RunOn(*queue_, [&] { value = 2 * value + 1; });
    other->Wait(queue_->Record());
    RunOn(*other, [&] { value /= 2; });
    queue_->Wait(other->Record());
  }
  EXPECT_THAT(queue_->Synchronize(), IsOk());
  EXPECT_EQ(value, 0);
}

TEST_P(HostQueueTest, ADefaultEventHasBeenReached) {
  queue_->Wait(Event());
  EXPECT_THAT(queue_->Synchronize(), IsOk());
}

TEST_P(HostQueueTest, AnEventOutlivesItsQueue) {
  auto other = device_->MakeQueue("other");
  int value = 0;
  RunOn(*other, [&] { value = 5; });
  const Event event = other->Record();
  other.reset();
  queue_->Wait(event);
  int seen = 0;
  RunOn(*queue_, [&] { seen = value; });
  EXPECT_THAT(queue_->Synchronize(), IsOk());
  EXPECT_EQ(seen, 5);
}

TEST_P(HostQueueTest, AFailureSkipsWhatFollowsAndStays) {
  int ran = 0;
  HostOf(queue_).Enqueue([&] {
    ++ran;
    return DiskIsFull();
  });
  RunOn(*queue_, [&] { ++ran; });
  HostOf(queue_).Enqueue([&] {
    ++ran;
    return Error(ErrorKind::kIo, "a later failure");
  });
  EXPECT_THAT(queue_->Synchronize(), FailsWith(ErrorKind::kNoSpace));
  RunOn(*queue_, [&] { ++ran; });
  EXPECT_THAT(queue_->Synchronize(), FailsWith(ErrorKind::kNoSpace));
  EXPECT_EQ(ran, 1);
}

TEST_P(HostQueueTest, TheCallerCanFailIt) {
  int ran = 0;
  RunOn(*queue_, [&] { ++ran; });
  queue_->Fail(DiskIsFull());
  RunOn(*queue_, [&] { ++ran; });
  EXPECT_THAT(queue_->Synchronize(), FailsWith(ErrorKind::kNoSpace));
  EXPECT_EQ(ran, 1) << "what came before runs, what comes behind does not";
}

TEST_P(HostQueueTest, AFailureReachesTheQueuesThatWaitForIt) {
  const auto waiting = device_->MakeQueue("waiting");
  const auto before = device_->MakeQueue("before");
  const Event early = queue_->Record();
  HostOf(queue_).Enqueue(DiskIsFull);
  waiting->Wait(queue_->Record());
  before->Wait(early);
  bool ran = false;
  RunOn(*waiting, [&] { ran = true; });
  EXPECT_THAT(waiting->Synchronize(), FailsWith(ErrorKind::kNoSpace));
  EXPECT_FALSE(ran);
  EXPECT_THAT(before->Synchronize(), IsOk()) << "waited for what came before the failure";
}

TEST_P(HostQueueTest, ADestroyedQueueFinishesItsWorkFirst) {
  int ran = 0;
  for (int i = 0; i < 50; ++i) RunOn(*queue_, [&] { ++ran; });
  queue_.reset();
  EXPECT_EQ(ran, 50);
}

// The caller has gone on, so nobody else could catch it.
TEST(ThreadQueueTest, WhatWorkThrowsIsItsFailure) {
  const auto device = MakeHostDevice({.queues = QueueMode::kThreads});
  const auto queue = device->MakeQueue("compute");
  bool ran = false;
  RunOn(*queue, [] { throw std::bad_alloc(); });
  RunOn(*queue, [&] { ran = true; });
  EXPECT_THAT(queue->Synchronize(), FailsWith(ErrorKind::kSystem));
  EXPECT_FALSE(ran);
}

TEST(ThreadQueueTest, DoesNotHoldUpTheCaller) {
  const auto device = MakeHostDevice({.queues = QueueMode::kThreads});
  const auto queue = device->MakeQueue("compute");
  std::latch released(1);
  std::thread::id ran_on;
  RunOn(*queue, [&] {
    released.wait();
    ran_on = std::this_thread::get_id();
  });
  released.count_down();  // never reached if RunOn waited
  EXPECT_THAT(queue->Synchronize(), IsOk());
  EXPECT_NE(ran_on, std::this_thread::get_id());
}

TEST(ThreadQueueTest, QueuesOfOneDeviceRunAtTheSameTime) {
  const auto device = MakeHostDevice({.queues = QueueMode::kThreads});
  const auto first = device->MakeQueue("first");
  const auto second = device->MakeQueue("second");
  std::latch both(2);
  RunOn(*first, [&] { both.arrive_and_wait(); });
  RunOn(*second, [&] { both.arrive_and_wait(); });
  EXPECT_THAT(first->Synchronize(), IsOk());
  EXPECT_THAT(second->Synchronize(), IsOk());
}

TEST(InlineQueueTest, RunsWorkBeforeRunOnReturns) {
  const auto device = MakeHostDevice({});
  const auto queue = device->MakeQueue("compute");
  bool ran = false;
  RunOn(*queue, [&] { ran = true; });
  EXPECT_TRUE(ran);
}

}  // namespace
}  // namespace ckpt::trainer

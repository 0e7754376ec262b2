// Ranks that read each other's memory: who waits for whom, and who does not.
#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/conformance/rank_values.h"
#include "tests/testing/matchers.h"
#include "trainer/comm/thread_comm.h"
#include "trainer/device/collectives.h"
#include "trainer/device/cpu/host_device.h"

namespace ckpt::trainer {
namespace {

using testing::FailsWith;
using testing::IsOk;

constexpr std::int64_t kPeerCount = 1000;

// A moment that both ranks of a test know.
class Moment {
 public:
  void Reach() { promise_.set_value(); }
  void Await() const { future_.wait(); }

 private:
  std::promise<void> promise_;
  std::shared_future<void> future_ = promise_.get_future().share();
};

// One of two ranks: a device, two queues, registered memory.
struct Peer {
  HostGroup& world;
  std::unique_ptr<Device> device =
      MakeHostDevice({.queues = QueueMode::kThreads, .delay_seed = 11, .reads_peers = true});
  Buffer memory = {};
  std::unique_ptr<Collectives> all = {};
  std::unique_ptr<Queue> compute = device->MakeQueue("compute");
  std::unique_ptr<Queue> comm = device->MakeQueue("comm");

  [[nodiscard]] Tensor values() const { return {memory.data(), DType::kFloat32, {kPeerCount}}; }
  void Set(Queue& queue, float value) const {
    RunOn(queue, [values = values(), value] {
      std::fill_n(values.as<float>(), values.num_elems(), value);
    });
  }
};

Status OnTwoRanks(const std::function<void(Peer& self)>& body) {
  return RunRanks(2, [&](HostGroup& world) -> Status {
    Peer self{.world = world};
    CKPT_ASSIGN_OR_RETURN(self.memory,
                          self.device->Allocate(kPeerCount * sizeof(float), MemoryUse::kOther));
    CKPT_ASSIGN_OR_RETURN(auto group, world.Split(0, world.rank()));
    CKPT_ASSIGN_OR_RETURN(self.all, self.device->MakeCollectives(std::move(group)));
    self.all->Register(self.memory);
    body(self);
    CKPT_RETURN_IF_ERROR(self.compute->Synchronize());
    CKPT_RETURN_IF_ERROR(self.comm->Synchronize());
    self.all->Leave();
    return OkStatus();
  });
}

// A rank whose own queue is late does not hold up those that read its shard.
TEST(PeerCollectivesTest, AGatherNeedsTheOthersShardsButNotTheirQueues) {
  Moment has_gathered;
  EXPECT_THAT(OnTwoRanks([&](Peer& self) {
                const auto mine = static_cast<float>(self.world.rank());
                self.Set(*self.compute, mine);
                const Event ready = self.compute->Record();
                const bool is_late = self.world.rank() == 1;
                if (is_late) RunOn(*self.comm, [&] { has_gathered.Await(); });
                std::vector<float> full(2 * kPeerCount);
                self.all->GatherShards(*self.comm, self.values(), ViewOf(full), ready);
                if (!is_late) {
                  EXPECT_THAT(self.comm->Synchronize(), IsOk());
                  has_gathered.Reach();
                }
                EXPECT_THAT(self.comm->Synchronize(), IsOk());
                EXPECT_EQ(full.front(), 0.0F);
                EXPECT_EQ(full.back(), 1.0F);
              }),
              IsOk());
}

// What a call lets others read stays until they have read it.
TEST(PeerCollectivesTest, AwaitReadersComesAfterTheOthersReads) {
  Moment may_read;
  std::atomic<bool> was_overwritten = false;
  EXPECT_THAT(OnTwoRanks([&](Peer& self) {
                self.Set(*self.compute, 1);
                const Event ready = self.compute->Record();
                const bool is_late = self.world.rank() == 1;
                if (is_late) RunOn(*self.comm, [&] { may_read.Await(); });
                std::vector<float> full(2 * kPeerCount);
                self.all->GatherShards(*self.comm, self.values(), ViewOf(full), ready);
                self.all->AwaitReaders(*self.compute, self.all->num_calls());
                if (!is_late) {
                  self.Set(*self.compute, 100);
                  RunOn(*self.compute, [&] { was_overwritten = true; });
                  // It has gathered, but the other rank has not read yet.
                  EXPECT_THAT(self.comm->Synchronize(), IsOk());
                  EXPECT_FALSE(was_overwritten);
                  may_read.Reach();
                }
                EXPECT_THAT(self.compute->Synchronize(), IsOk());
                EXPECT_THAT(self.comm->Synchronize(), IsOk());
                EXPECT_THAT(full, ::testing::Each(1.0F));
              }),
              IsOk());
  EXPECT_TRUE(was_overwritten);
}

TEST(PeerCollectivesTest, ARankLeavesAfterTheOthersReads) {
  Moment may_read;
  std::atomic<bool> has_read = false;
  EXPECT_THAT(OnTwoRanks([&](Peer& self) {
                self.Set(*self.compute, 3);
                const Event ready = self.compute->Record();
                const bool is_late = self.world.rank() == 1;
                if (is_late) RunOn(*self.comm, [&] { may_read.Await(); });
                std::vector<float> full(2 * kPeerCount);
                self.all->GatherShards(*self.comm, self.values(), ViewOf(full), ready);
                if (is_late) {
                  RunOn(*self.comm, [&] { has_read = true; });
                  may_read.Reach();
                  EXPECT_THAT(self.comm->Synchronize(), IsOk());
                  EXPECT_THAT(full, ::testing::Each(3.0F));
                } else {
                  EXPECT_THAT(self.comm->Synchronize(), IsOk());
                  self.all->Leave();
                  self.Set(*self.compute, 100);
                  EXPECT_THAT(self.compute->Synchronize(), IsOk());
                }
              }),
              IsOk());
  EXPECT_TRUE(has_read);
}

// A rank that fails takes back nothing that another is reading, and the others do not wait for it.
TEST(PeerCollectivesTest, ACallThatARankNeverMakesIsCancelled) {
  EXPECT_THAT(OnTwoRanks([&](Peer& self) {
                std::vector<float> full(2 * kPeerCount);
                self.all->AllGather(*self.comm, self.values(), ViewOf(full));
                EXPECT_THAT(self.comm->Synchronize(), IsOk());
                if (self.world.rank() == 1) return;  // leaves
                self.all->AllGather(*self.comm, self.values(), ViewOf(full));
                EXPECT_THAT(self.comm->Synchronize(), FailsWith(ErrorKind::kCancelled));
              }),
              FailsWith(ErrorKind::kCancelled));
}

// The failure of a queue reaches the ranks that would read what it did not write.
TEST(PeerCollectivesTest, WorkThatFailsBeforeACallFailsTheReaders) {
  EXPECT_THAT(OnTwoRanks([&](Peer& self) {
                if (self.world.rank() == 1) {
                  self.comm->Fail(Error(ErrorKind::kSystem, "out of memory"));
                }
                std::vector<float> full(2 * kPeerCount);
                self.all->AllGather(*self.comm, self.values(), ViewOf(full));
                const Status status = self.comm->Synchronize();
                EXPECT_THAT(status, FailsWith(self.world.rank() == 1 ? ErrorKind::kSystem
                                                                     : ErrorKind::kCancelled));
                EXPECT_THAT(status.ToString(), ::testing::HasSubstr("out of memory"));
                self.all->Leave();
              }),
              FailsWith(ErrorKind::kSystem));
}

}  // namespace
}  // namespace ckpt::trainer

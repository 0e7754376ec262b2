// Threads as ranks: the conformance suite, and what happens when a rank fails.
#include "trainer/comm/thread_comm.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/conformance/agreement_suite.h"
#include "tests/conformance/collectives_suite.h"
#include "tests/testing/matchers.h"
#include "tests/trainer/comm/no_more_threads.h"
#include "trainer/comm/exchange_values.h"
#include "trainer/device/cpu/host_device.h"

namespace ckpt::trainer {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;

std::vector<WorldCase> ThreadWorlds() {
  std::vector<WorldCase> cases;
  for (const bool reads_peers : {false, true}) {
    for (const QueueMode queues : {QueueMode::kInline, QueueMode::kThreads}) {
      for (const int ranks : {1, 2, 3, 4, 8}) {
        const std::string mode = queues == QueueMode::kInline ? "Inline" : "Threads";
        cases.push_back({.name = (reads_peers ? "Peers" : "") + mode + std::to_string(ranks),
                         .make_device = HostDevices(queues, reads_peers),
                         .may_swap_groups = queues == QueueMode::kThreads && !reads_peers,
                         .run = [ranks](const auto& body) { return RunRanks(ranks, body); }});
      }
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Threads, CollectivesSuite, ::testing::ValuesIn(ThreadWorlds()),
                         WorldCaseName);
INSTANTIATE_TEST_SUITE_P(Threads, AgreementSuite, ::testing::ValuesIn(ThreadWorlds()),
                         WorldCaseName);

// Nobody waits for a rank that is gone.
TEST(AgreementTest, FailsWhenARankIsGone) {
  EXPECT_THAT(RunRanks(3,
                       [](HostGroup& world) -> Status {
                         if (world.rank() == 2) return OkStatus();  // leaves
                         EXPECT_THAT(ExchangeTexts(world, "x"), FailsWith(ErrorKind::kCancelled));
                         EXPECT_THAT(AgreeOn(world, OkStatus()), FailsWith(ErrorKind::kCancelled));
                         EXPECT_THAT(AgreeOn(world, Error(ErrorKind::kNoSpace, "own")),
                                     FailsWith(ErrorKind::kNoSpace));
                         EXPECT_THAT(HoldsEverywhere(world, true),
                                     FailsWith(ErrorKind::kCancelled));
                         return OkStatus();
                       }),
              IsOk());
}

// Every way in which ranks that are threads communicate.
const HostDeviceOptions kModes[] = {{.queues = QueueMode::kInline},
                                    {.queues = QueueMode::kThreads},
                                    {.queues = QueueMode::kInline, .reads_peers = true},
                                    {.queues = QueueMode::kThreads, .reads_peers = true}};

TEST(RunRanksTest, RunsEveryRankOnce) {
  std::vector<std::atomic<int>> runs(5);
  EXPECT_THAT(RunRanks(5,
                       [&](HostGroup& world) {
                         EXPECT_EQ(world.size(), 5);
                         ++runs[static_cast<std::size_t>(world.rank())];
                         return OkStatus();
                       }),
              IsOk());
  for (const auto& run : runs) EXPECT_EQ(run, 1);
}

TEST(RunRanksTest, ReportsTheCauseAndNotWhatItCancelled) {
  const Status status = RunRanks(4, [](HostGroup& world) -> Status {
    if (world.rank() == 2) return Error(ErrorKind::kNoSpace, "the disk is full");
    return world.Barrier();
  });
  EXPECT_THAT(status, FailsWith(ErrorKind::kNoSpace));
}

// Memory that runs out on one rank ends the others, which wait for it, and not the process.
TEST(RunRanksTest, AnExceptionOnOneRankIsItsError) {
  const auto run = [](const auto& thrown) {
    return RunRanks(3, [&](HostGroup& world) -> Status {
      if (world.rank() == 1) throw thrown;
      return world.Barrier();
    });
  };
  EXPECT_THAT(run(std::bad_alloc()), FailsWith(ErrorKind::kSystem));
  EXPECT_THAT(run(std::length_error("far too long")), FailsWith(ErrorKind::kResource));
  EXPECT_THAT(run(std::runtime_error("unforeseen")), FailsWith(ErrorKind::kInternal));
}

TEST(RunRanksTest, ARankThatGetsNoThreadIsAnError) {
  const testing::NoMoreThreads limit;
  EXPECT_THAT(RunRanks(2, [](HostGroup& world) { return world.Barrier(); }),
              FailsWith(ErrorKind::kSystem));
}

// The other ranks have met it, and do not wait for its end of the call.
TEST(RunRanksTest, AnExceptionWithinACallIsTheErrorOfItsRank) {
  const Status status = RunRanks(3, [](HostGroup& world) -> Status {
    const std::vector<std::byte> full(3);
    const auto use = [&](std::span<const std::byte* const>, std::uint64_t, std::uint64_t) {
      if (world.rank() == 1) throw std::bad_alloc();
    };
    CKPT_RETURN_IF_ERROR(world.ExchangeParts(full, use));
    return world.Barrier();
  });
  EXPECT_THAT(status, FailsWith(ErrorKind::kSystem));
}

TEST(ExchangeValuesTest, GivesEveryRankTheValuesInOrderOfRank) {
  struct Pair {
    std::int32_t rank = 0;
    double half = 0;
  };
  EXPECT_THAT(RunRanks(3,
                       [](HostGroup& world) -> Status {
                         CKPT_ASSIGN_OR_RETURN(
                             const std::vector<Pair> all,
                             ExchangeValues(world, Pair{world.rank(), world.rank() / 2.0}));
                         EXPECT_EQ(all.size(), 3U);
                         for (std::size_t rank = 0; rank < all.size(); ++rank) {
                           EXPECT_EQ(all[rank].rank, static_cast<std::int32_t>(rank));
                           EXPECT_EQ(all[rank].half, static_cast<double>(rank) / 2);
                         }
                         return OkStatus();
                       }),
              IsOk());
}

TEST(RunRanksTest, ReportsACancellationIfThereIsNothingElse) {
  EXPECT_THAT(RunRanks(2,
                       [](HostGroup& world) -> Status {
                         if (world.rank() == 0) return OkStatus();  // leaves the other waiting
                         return world.Barrier();
                       }),
              FailsWith(ErrorKind::kCancelled));
}

TEST(ThreadCommAbort, LeavesASeparateGroupAlone) {
  EXPECT_THAT(RunRanks(3,
                       [](HostGroup& world) -> Status {
                         CKPT_ASSIGN_OR_RETURN(const auto separate, world.Separate());
                         if (world.rank() == 1) world.Abort(Error(ErrorKind::kIo, "cable cut"));
                         EXPECT_THAT(world.Barrier(), FailsWith(ErrorKind::kCancelled));
                         EXPECT_THAT(HoldsEverywhere(*separate, true),
                                     ::ckpt::testing::IsOkAndHolds(true));
                         // Nobody waits in it for a rank that is gone.
                         if (world.rank() == 2) return OkStatus();
                         EXPECT_THAT(separate->Barrier(), FailsWith(ErrorKind::kCancelled));
                         return OkStatus();
                       }),
              IsOk());
}

TEST(ThreadCommAbort, WakesEveryWaitingRankInEveryGroupWithTheReason) {
  for (HostDeviceOptions mode : kModes) {
    mode.delay_seed = 7;
    std::atomic<int> cancelled = 0;
    const Status status = RunRanks(8, [&](HostGroup& world) -> Status {
      const auto device = MakeHostDevice(mode);
      const auto queue = device->MakeQueue("comm");
      CKPT_ASSIGN_OR_RETURN(const auto all, SplitCollectives(world, *device, 0, world.rank()));
      CKPT_ASSIGN_OR_RETURN(const auto pair,
                            SplitCollectives(world, *device, world.rank() / 2, world.rank()));
      CKPT_RETURN_IF_ERROR(world.Barrier());  // all have their groups
      if (world.rank() == 5) {
        world.Abort(Error(ErrorKind::kIo, "cable cut").File("eth0"));
        return OkStatus();
      }
      // Rank 4 waits for rank 5 in their pair, the others in the world, half of them on the host.
      std::vector<float> data(1000, 1.0F);
      Status answer;
      if (world.rank() % 2 == 0) {
        Collectives& waits_in = world.rank() == 4 ? *pair : *all;
        waits_in.AllReduce(*queue, ViewOf(data), ReduceOp::kSum);
        answer = queue->Synchronize();
      } else {
        answer = world.Barrier();
      }
      EXPECT_THAT(answer, FailsWith(ErrorKind::kCancelled));
      EXPECT_THAT(answer.ToString(), HasSubstr("cable cut"));
      EXPECT_THAT(world.Barrier(), FailsWith(ErrorKind::kCancelled)) << "a later call";
      EXPECT_THAT(world.Split(0, 0), FailsWith(ErrorKind::kCancelled));
      ++cancelled;
      return OkStatus();
    });
    EXPECT_THAT(status, IsOk());
    EXPECT_EQ(cancelled, 7);
  }
}

// Aborts at random moments of a stream of collectives: nobody hangs, and nobody reads what another
// already freed (which AddressSanitizer and ThreadSanitizer would see).
TEST(ThreadCommAbort, MayHappenInTheMiddleOfACollective) {
  for (int trial = 0; trial < 40; ++trial) {
    const Status status = RunRanks(4, [&](HostGroup& world) -> Status {
      HostDeviceOptions mode = kModes[trial % 4];
      mode.delay_seed = static_cast<std::uint64_t>(trial) + 1;
      const auto device = MakeHostDevice(mode);
      const auto queue = device->MakeQueue("comm");
      CKPT_ASSIGN_OR_RETURN(const auto all, SplitCollectives(world, *device, 0, world.rank()));
      for (int round = 0;; ++round) {
        std::vector<float> data(20'000, 1.0F), gathered(80'000);
        all->AllGather(*queue, ViewOf(data), ViewOf(gathered));
        all->AllReduce(*queue, ViewOf(data), ReduceOp::kSum);
        if (world.rank() == trial % 4 && round == trial / 8) {
          world.Abort(Error(ErrorKind::kIo, "planned"));
        }
        Status done = queue->Synchronize();
        if (done.ok()) continue;
        all->Leave();  // before the memory goes
        return done;
      }
    });
    EXPECT_THAT(status, FailsWith(ErrorKind::kCancelled));
  }
}

TEST(ThreadCommTest, ARankThatLeavesCancelsThoseThatWaitForIt) {
  std::vector<std::unique_ptr<HostGroup>> worlds = MakeThreadWorld(2);
  worlds[1].reset();
  const Status status = worlds[0]->Barrier();
  EXPECT_THAT(status, FailsWith(ErrorKind::kCancelled));
  EXPECT_THAT(status.ToString(), HasSubstr("rank 1 is gone"));
}

TEST(ThreadCommTest, RefusesDifferentCallsInsteadOfMixingThem) {
  for (const HostDeviceOptions& mode : kModes) {
    const Status status = RunRanks(3, [&](HostGroup& world) -> Status {
      const auto device = MakeHostDevice(mode);
      const auto queue = device->MakeQueue("comm");
      CKPT_ASSIGN_OR_RETURN(const auto all, SplitCollectives(world, *device, 0, world.rank()));
      std::vector<float> full(30), shard(10);
      if (world.rank() == 1) {
        all->ReduceScatter(*queue, ViewOf(full), ViewOf(shard));
      } else {
        all->AllGather(*queue, ViewOf(shard), ViewOf(full));
      }
      EXPECT_THAT(queue->Synchronize(), FailsWith(ErrorKind::kInternal));
      all->Leave();
      return OkStatus();
    });
    EXPECT_THAT(status, IsOk());
  }
}

TEST(ThreadCommTest, RefusesRowsThatAreNotExpected) {
  for (const HostDeviceOptions& mode : kModes) {
    const Status status = RunRanks(2, [&](HostGroup& world) -> Status {
      // They outlive the collectives: other ranks read them until this rank has left its group.
      std::vector<float> send(4), receive(4);
      std::vector<std::int64_t> send_rows = {1, 2}, receive_rows = {1, 1};
      const auto device = MakeHostDevice(mode);
      const auto queue = device->MakeQueue("comm");
      CKPT_ASSIGN_OR_RETURN(const auto all, SplitCollectives(world, *device, 0, world.rank()));
      const RowTransfer transfer = {.send = ViewOf(send), .receive = ViewOf(receive)};
      all->AllToAll(*queue, {&transfer, 1}, all->ReadCounts(*queue, ViewOf(send_rows)),
                    all->ReadCounts(*queue, ViewOf(receive_rows)));
      return queue->Synchronize();
    });
    EXPECT_THAT(status, FailsWith(ErrorKind::kInternal));
  }
}

}  // namespace
}  // namespace ckpt::trainer

// Processes as ranks. Started under mpirun:
//
//   test_trainer_comm_mpi suite inline|threads RANKS   the conformance suite, every process one
//   rank test_trainer_comm_mpi abort RANKS                  rank 1 fails while the others wait for
//   it
//   test_trainer_comm_mpi missing barrier|exchange|split|finish RANKS   the last rank does not come
#include "trainer/comm/mpi_comm.h"

#include <charconv>
#include <chrono>
#include <cstdio>
#include <string_view>
#include <thread>

#include <gmock/gmock.h>

#include "tests/conformance/agreement_suite.h"
#include "tests/conformance/collectives_suite.h"
#include "tests/testing/matchers.h"
#include "trainer/comm/agreement.h"
#include "trainer/comm/world.h"

namespace ckpt::trainer {
namespace {

// MPI starts once in a process, so the tests share this rank.
HostGroup* mpi_world = nullptr;

WorldCase OnMpi(std::string name, QueueMode queues) {
  return {.name = std::move(name),
          .make_device = HostDevices(queues, /*reads_peers=*/false),
          .may_swap_groups = queues == QueueMode::kThreads,
          .run = [](const auto& body) { return body(*mpi_world); }};
}

INSTANTIATE_TEST_SUITE_P(Mpi, CollectivesSuite,
                         ::testing::Values(OnMpi("Inline", QueueMode::kInline),
                                           OnMpi("Threads", QueueMode::kThreads)),
                         WorldCaseName);
INSTANTIATE_TEST_SUITE_P(Mpi, AgreementSuite,
                         ::testing::Values(OnMpi("Inline", QueueMode::kInline),
                                           OnMpi("Threads", QueueMode::kThreads)),
                         WorldCaseName);

// More than fits one round of an MPI call, and not a multiple of it.
TEST(MpiCommTest, LargeOperandsGoInRounds) {
  constexpr std::int64_t kCount = 2'345'679;
  const auto device = MakeHostDevice({});
  const auto queue = device->MakeQueue("comm");
  const auto all = SplitCollectives(*mpi_world, *device, 0, mpi_world->rank());
  ASSERT_THAT(all, testing::IsOk());
  const int rank = mpi_world->rank();
  const int size = mpi_world->size();

  std::vector<float> shard = ValuesOf<float>(rank, kCount);
  std::vector<float> full(shard.size() * static_cast<std::size_t>(size));
  (*all)->AllGather(*queue, ViewOf(shard), ViewOf(full));
  ASSERT_THAT(queue->Synchronize(), testing::IsOk());
  std::vector<float> expected;
  for (int peer = 0; peer < size; ++peer) {
    for (const float value : ValuesOf<float>(peer, kCount)) expected.push_back(value);
  }
  ExpectSameBits(full, expected, "AllGather");

  full = ValuesOf<float>(rank, kCount * size);
  const std::int64_t begin = rank * kCount;
  (*all)->ReduceScatter(*queue, ViewOf(full), ViewOf(full).Rows(begin, kCount));
  ASSERT_THAT(queue->Synchronize(), testing::IsOk());
  expected.clear();
  for (std::int64_t i = 0; i < kCount; ++i) expected.push_back(SumAt<float>(size, begin + i));
  ExpectSameBits(std::vector<float>(full.begin() + begin, full.begin() + begin + kCount), expected,
                 "ReduceScatter");

  (*all)->AllReduce(*queue, ViewOf(shard), ReduceOp::kSum);
  ASSERT_THAT(queue->Synchronize(), testing::IsOk());
  expected.clear();
  for (std::int64_t i = 0; i < kCount; ++i) expected.push_back(SumAt<float>(size, i));
  ExpectSameBits(shard, expected, "AllReduce");
}

TEST(MpiCommTest, ProcessesDoNotReadEachOthersMemory) {
  const auto device = MakeHostDevice({.reads_peers = true});
  EXPECT_THAT(SplitCollectives(*mpi_world, *device, 0, mpi_world->rank()),
              testing::FailsWith(ErrorKind::kUnsupported));
}

TEST(MpiCommTest, StartsOnce) {
  EXPECT_THAT(RunMpiRank({}, [](HostGroup&) { return OkStatus(); }),
              testing::FailsWith(ErrorKind::kUsage));
}

int RunSuite(bool with_threads, int num_ranks) {
  if (!with_threads) ::testing::GTEST_FLAG(filter) = "-*/Threads";
  int failures = 1;
  const Status status = RunMpiRank({.from_threads = with_threads}, [&](HostGroup& world) {
    EXPECT_EQ(world.size(), num_ranks);
    mpi_world = &world;
    failures = RUN_ALL_TESTS();
    return OkStatus();
  });
  std::fputs(status.ToString().c_str(), stderr);
  return status.ok() ? failures : 1;
}

int RunAbort(int num_ranks) {
  const Status status = RunWorld({.num_ranks = num_ranks}, [](HostGroup& world) -> Status {
    if (world.rank() == 1) {
      return Error(ErrorKind::kNoSpace, "the disk is full").Hint("remove something");
    }
    return world.Barrier();
  });
  return status.ok() ? 0 : 1;
}

// The last rank is busy for longer than the others wait in a call. With "finish", no call is made.
int RunMissing(std::string_view call, int num_ranks) {
  const Status status = RunWorld({.num_ranks = num_ranks, .timeout = std::chrono::seconds(1)},
                                 [&](HostGroup& world) -> Status {
                                   CKPT_RETURN_IF_ERROR(world.Barrier());
                                   if (world.rank() + 1 == world.size())
                                     std::this_thread::sleep_for(std::chrono::minutes(1));
                                   if (call == "barrier") return world.Barrier();
                                   if (call == "exchange") return AgreeOn(world, OkStatus());
                                   if (call == "split")
                                     return world.Split(0, world.rank()).status();
                                   return OkStatus();
                                 });
  return status.ok() ? 0 : 1;
}

int Main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  const std::vector<std::string_view> words(argv + 1, argv + argc);
  int num_ranks = 0;
  if (!words.empty()) {
    std::from_chars(words.back().data(), words.back().data() + words.back().size(), num_ranks);
  }
  if (words.size() == 3 && words[0] == "suite") return RunSuite(words[1] == "threads", num_ranks);
  if (words.size() == 2 && words[0] == "abort") return RunAbort(num_ranks);
  if (words.size() == 3 && words[0] == "missing") return RunMissing(words[1], num_ranks);
  std::fputs("usage: suite inline|threads RANKS, abort RANKS, or missing CALL RANKS\n", stderr);
  return 2;
}

}  // namespace
}  // namespace ckpt::trainer

int main(int argc, char** argv) { return ckpt::trainer::Main(argc, argv); }

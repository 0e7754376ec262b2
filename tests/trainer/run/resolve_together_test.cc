// Ranks that read a checkpoint's metadata together: one reads; after a failure no other waits.
#include "trainer/run/resolve_together.h"

#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/io/memory_storage.h"
#include "tests/testing/counting_storage.h"
#include "tests/testing/matchers.h"
#include "tests/trainer/run/small_session.h"
#include "trainer/comm/thread_comm.h"

namespace ckpt::train {
namespace {

using testing::CountingStorage;
using testing::FailsWith;
using testing::IsOk;
using testing::SaveState;
using testing::SmallSessions;
using testing::TinySettings;
using testing::With;
using trainer::HostGroup;

constexpr int kNumRanks = 4;

// Each rank reads through a storage of its own, as processes do.
class ResolveTogetherTest : public ::testing::TestWithParam<const char*> {
 protected:
  ResolveTogetherTest() {
    auto sessions = SmallSessions::Create(
        *disk_, With(TinySettings(), {{"save", "/run"}, {"save_format", GetParam()}}), 2);
    EXPECT_THAT(sessions, IsOk());
    EXPECT_THAT(
        sessions->Run([](RankSession& session, HostGroup&) { return SaveState(session, 1, 1); }),
        IsOk());
  }

  static Result<RunConfig> Resolve(Storage& storage) {
    return ResolveRun(storage, {{"load", "/run"}, {"global_batch_size", kNumRanks}}, kNumRanks);
  }

  const std::unique_ptr<Storage> disk_ = MakeMemoryStorage();
};

INSTANTIATE_TEST_SUITE_P(Formats, ResolveTogetherTest,
                         ::testing::Values("fsdp_dtensor", "torch_dist", "fsdp2", "hdf5"));

TEST_P(ResolveTogetherTest, OneRankReadsForAll) {
  CountingStorage alone(*disk_);
  const Result<RunConfig> expected = Resolve(alone);
  ASSERT_THAT(expected, IsOk());
  ASSERT_GT(alone.bytes_read(), 0U);
  std::vector<std::uint64_t> bytes_read(kNumRanks);
  EXPECT_THAT(trainer::RunRanks(
                  kNumRanks,
                  [&](HostGroup& world) -> Status {
                    CountingStorage counted(*disk_);
                    SharedReads reads(counted);
                    std::optional<Result<RunConfig>> run;
                    CKPT_RETURN_IF_ERROR(ReadTogether(world, reads, [&] { run = Resolve(reads); }));
                    CKPT_RETURN_IF_ERROR(run->status());
                    EXPECT_EQ((*run)->effective, expected->effective);
                    bytes_read[static_cast<std::size_t>(world.rank())] = counted.bytes_read();
                    return OkStatus();
                  }),
              IsOk());
  EXPECT_THAT(bytes_read, ::testing::ElementsAre(alone.bytes_read(), 0, 0, 0));
}

// Whoever can read goes on alone: which failure ends the run is said where the ranks meet next.
TEST_P(ResolveTogetherTest, ARankThatCannotReadFailsAndKeepsNoOtherWaiting) {
  for (const int failing : {0, 1}) {
    EXPECT_THAT(trainer::RunRanks(kNumRanks,
                                  [&](HostGroup& world) -> Status {
                                    CountingStorage counted(*disk_);
                                    const bool fails = world.rank() == failing;
                                    if (fails) counted.FailReads(world.rank() == 0 ? 100 : 0);
                                    SharedReads reads(counted);
                                    std::optional<Result<RunConfig>> run;
                                    CKPT_RETURN_IF_ERROR(
                                        ReadTogether(world, reads, [&] { run = Resolve(reads); }));
                                    // A rank whose reads are answered needs no disk.
                                    if (fails && failing == 0) {
                                      EXPECT_THAT(*run, FailsWith(ErrorKind::kIo));
                                    } else {
                                      EXPECT_THAT(*run, IsOk());
                                    }
                                    return OkStatus();
                                  }),
                IsOk());
  }
}

TEST_P(ResolveTogetherTest, WhatARankThrowsIsItsError) {
  EXPECT_THAT(trainer::RunRanks(kNumRanks,
                                [&](HostGroup& world) -> Status {
                                  SharedReads reads(*disk_);
                                  const bool throws = world.rank() % 2 == 0;
                                  const Status status = ReadTogether(world, reads, [&] {
                                    if (throws) throw std::bad_alloc();
                                    EXPECT_THAT(Resolve(reads), IsOk());
                                  });
                                  if (throws) {
                                    EXPECT_THAT(status, FailsWith(ErrorKind::kSystem));
                                  } else {
                                    EXPECT_THAT(status, IsOk());
                                  }
                                  return OkStatus();
                                }),
              IsOk());
}

}  // namespace
}  // namespace ckpt::train

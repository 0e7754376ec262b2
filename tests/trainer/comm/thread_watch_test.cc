// Calls of ranks that are threads which wait in a device, where no cancellation reaches them.
#include "trainer/comm/internal/thread_watch.h"

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/matchers.h"
#include "tools/cli/exit_code.h"
#include "trainer/comm/internal/failed_exit_code.h"
#include "trainer/comm/thread_comm.h"

namespace ckpt::trainer {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;
using Clock = ThreadWatch::Clock;

// Two ranks of a world, a track each.
struct Ranks {
  explicit Ranks(milliseconds timeout) : watch(timeout) {
    for (int rank = 0; rank < 2; ++rank) {
      tracks.push_back(std::make_shared<CallTrack>("nccl", std::vector<int>{0, 1}));
      watch.Add(rank, tracks.back());
    }
  }
  ThreadWatch watch;
  std::vector<std::shared_ptr<CallTrack>> tracks;
};

TEST(ThreadWatchTest, ACallMayTakeAsLongAsTheTimeOut) {
  Ranks ranks(minutes(10));
  EXPECT_THAT(ranks.watch.Look(Clock::now() + minutes(20)), IsOk());
  ranks.tracks[1]->Begin("an all-gather", 4000);
  EXPECT_THAT(ranks.watch.Look(Clock::now() + minutes(9)), IsOk());
  const Status late = ranks.watch.Look(Clock::now() + minutes(10));
  ASSERT_THAT(late, FailsWith(ErrorKind::kSystem));
  EXPECT_EQ(late.first().expected, "an end within 600 s");
  EXPECT_EQ(late.first().actual,
            "rank 1 waits in an all-gather of 4000 bytes, call 1 of a group of 2 ranks");
  ranks.tracks[1]->End();
  EXPECT_THAT(ranks.watch.Look(Clock::now() + minutes(20)), IsOk());
}

TEST(ThreadWatchTest, WithoutATimeOutACallMayTakeForEver) {
  Ranks ranks(milliseconds(0));
  ranks.tracks[0]->Begin("a barrier", 0);
  EXPECT_THAT(ranks.watch.Look(Clock::now() + minutes(1000)), IsOk());
}

TEST(ThreadWatchTest, ACallGoesOnForAWhileAfterARankGaveUp) {
  Ranks ranks(milliseconds(0));
  ranks.watch.Cancel(Error(ErrorKind::kCancelled, "a rank gave up: the disk is full"));
  EXPECT_THAT(ranks.watch.Look(Clock::now() + minutes(1)), IsOk());
  for (const auto& track : ranks.tracks) track->Begin("an all-gather", 0);
  EXPECT_THAT(ranks.watch.Look(Clock::now() + ThreadWatch::kPatience / 2), IsOk());
  const Status goes_on = ranks.watch.Look(Clock::now() + ThreadWatch::kPatience);
  ASSERT_THAT(goes_on, FailsWith(ErrorKind::kCancelled));
  EXPECT_THAT(goes_on.ToString(), HasSubstr("the disk is full"));
  EXPECT_THAT(goes_on.ToString(), HasSubstr("rank 0 waits in an all-gather, call 1 of a group of 2 "
                                            "ranks; rank 1 waits in an all-gather"));
}

TEST(ThreadWatchTest, TheTimeInWhichTheProcessWasStoppedDoesNotCount) {
  Ranks ranks(minutes(10));
  ranks.watch.Cancel(Error(ErrorKind::kCancelled, "a rank gave up: the disk is full"));
  ranks.tracks[0]->Begin("an all-gather", 0);
  const Clock::time_point resumed = Clock::now() + minutes(30);
  ranks.watch.Resume(resumed);
  EXPECT_THAT(ranks.watch.Look(resumed), IsOk());
  EXPECT_THAT(ranks.watch.Look(resumed + ThreadWatch::kPatience), FailsWith(ErrorKind::kCancelled));
}

TEST(ThreadWatchTest, ATrackThatIsGoneIsNotWatched) {
  Ranks ranks(minutes(10));
  ranks.tracks[0]->Begin("a barrier", 0);
  ranks.tracks.clear();
  EXPECT_THAT(ranks.watch.Look(Clock::now() + minutes(20)), IsOk());
}

static_assert(kFailedExitCode == static_cast<int>(cli::ExitCode::kFailed));

// Rank 2 of four waits for ever in a device. `of_last`: what rank 3 ends with.
Status WaitForEver(milliseconds timeout, const Status& of_last) {
  return RunRanks(
      4,
      [&](HostGroup& world) -> Status {
        CKPT_ASSIGN_OR_RETURN(const std::unique_ptr<HostGroup> half,
                              world.Split(world.rank() / 2, 0));
        const std::shared_ptr<CallTrack> track = half->MakeTrack("nccl");
        if (world.rank() == 2) {
          const TrackedCall call(*track, "an all-gather", 0);
          std::this_thread::sleep_for(minutes(1));
        }
        return world.rank() == 3 ? of_last : OkStatus();
      },
      timeout);
}

TEST(ThreadWatchDeathTest, ACallThatTakesTooLongEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT((void)WaitForEver(milliseconds(200), OkStatus()),
              ::testing::ExitedWithCode(kFailedExitCode),
              "the run ends: .*within 0.2 s, found rank 2 waits in an all-gather, call 1 of a "
              "group of 2 ranks");
}

TEST(ThreadWatchDeathTest, ACallThatGoesOnAfterARankFailedEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT((void)WaitForEver(minutes(10), Error(ErrorKind::kNoSpace, "the disk is full")),
              ::testing::ExitedWithCode(kFailedExitCode),
              "the run ends: .*the disk is full.*rank 2 waits in");
}

}  // namespace
}  // namespace ckpt::trainer

#include "trainer/comm/world.h"

#include <atomic>
#include <cstdlib>
#include <utility>

#include <gmock/gmock.h>

#include "tests/testing/matchers.h"
#include "trainer/comm/launcher.h"

namespace ckpt::trainer {
namespace {

using testing::FailsWith;
using testing::IsOk;

constexpr const char* kLauncherSizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
                                          "SLURM_STEP_NUM_TASKS"};
constexpr const char* kRanks[] = {"PMIX_RANK", "PMI_RANK", "PALS_RANKID", "SLURM_PROCID"};

// As if nothing, or one launcher, had started the process.
class WorldTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : kLauncherSizes) unsetenv(name);
    for (const char* name : kRanks) unsetenv(name);
  }
  void TearDown() override { SetUp(); }
};

TEST_F(WorldTest, WithoutALauncherRanksAreThreads) {
  EXPECT_EQ(NumLaunchedProcesses(), 1);
  for (const int asked : {0, 3}) {
    std::atomic<int> ranks = 0;
    EXPECT_THAT(RunWorld({.num_ranks = asked},
                         [&](HostGroup& world) {
                           EXPECT_EQ(world.size(), asked == 0 ? 1 : asked);
                           ++ranks;
                           return world.Barrier();
                         }),
                IsOk());
    EXPECT_EQ(ranks, asked == 0 ? 1 : asked);
  }
}

TEST_F(WorldTest, RefusesAnotherNumberOfRanksThanTheLauncherStarted) {
  for (const char* name : kLauncherSizes) {
    setenv(name, "4", 1);
    EXPECT_EQ(NumLaunchedProcesses(), 4) << name;
    bool ran = false;
    const Status status = RunWorld({.num_ranks = 2}, [&](HostGroup&) {
      ran = true;
      return OkStatus();
    });
    EXPECT_THAT(status, FailsWith(ErrorKind::kUsage));
    EXPECT_FALSE(ran);
    unsetenv(name);
  }
}

TEST_F(WorldTest, TasksOfSrunNeedAWayToFindEachOther) {
  EXPECT_THAT(CheckCanMeet(), IsOk());
  setenv("SLURM_STEP_NUM_TASKS", "1", 1);
  EXPECT_THAT(CheckCanMeet(), IsOk());
  setenv("SLURM_STEP_NUM_TASKS", "4", 1);
  EXPECT_THAT(CheckCanMeet(), FailsWith(ErrorKind::kUnsupported));
  for (const char* name : {"PMIX_RANK", "PMI_RANK", "PALS_RANKID", "OMPI_COMM_WORLD_SIZE"}) {
    setenv(name, "4", 1);
    EXPECT_THAT(CheckCanMeet(), IsOk()) << name;
    unsetenv(name);
  }
}

TEST_F(WorldTest, TheFirstTaskOfSrunSpeaks) {
  EXPECT_TRUE(IsFirstTask());
  for (const auto& [rank, is_first] : {std::pair("0", true), std::pair("10", false)}) {
    setenv("SLURM_PROCID", rank, 1);
    EXPECT_EQ(IsFirstTask(), is_first) << rank;
  }
}

TEST_F(WorldTest, OneLaunchedProcessHasThreadsForRanks) {
  setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
  EXPECT_THAT(RunWorld({.num_ranks = 2},
                       [](HostGroup& world) {
                         EXPECT_EQ(world.size(), 2);
                         return OkStatus();
                       }),
              IsOk());
}

}  // namespace
}  // namespace ckpt::trainer

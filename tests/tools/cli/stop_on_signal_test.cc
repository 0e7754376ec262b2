#include "tools/cli/stop_on_signal.h"

#include <atomic>
#include <csignal>
#include <stop_token>
#include <thread>

#include <gtest/gtest.h>

namespace ckpt::cli {
namespace {

TEST(StopOnSignalTest, KeepsTheFirstSignalInMind) {
  for (const int signal : kBatchSignals) {
    const StopOnSignal stop(kBatchSignals);
    EXPECT_FALSE(StopOnSignal::HasArrived());
    EXPECT_FALSE(stop.token().stop_requested());
    std::raise(signal);
    EXPECT_TRUE(StopOnSignal::HasArrived());
    while (!stop.token().stop_requested()) std::this_thread::yield();
  }
}

TEST(StopOnSignalTest, TakesTheSignalsItIsGivenAlone) {
  std::atomic<int> num_others = 0;
  static std::atomic<int>* counter = nullptr;
  counter = &num_others;
  const auto before = std::signal(SIGUSR1, [](int) { ++*counter; });
  {
    const StopOnSignal stop;
    std::raise(SIGUSR1);
    EXPECT_FALSE(StopOnSignal::HasArrived());
  }
  EXPECT_EQ(num_others, 1);
  std::signal(SIGUSR1, before);
}

TEST(StopOnSignalTest, EndsWithoutASignal) {
  std::stop_token token;
  {
    const StopOnSignal stop;
    token = stop.token();
  }
  EXPECT_FALSE(token.stop_requested());
}

TEST(StopOnSignalTest, LeavesIgnoredWhatIsIgnored) {
  const auto before = std::signal(SIGHUP, SIG_IGN);
  {
    const StopOnSignal stop(kBatchSignals);
    std::raise(SIGHUP);
    EXPECT_FALSE(StopOnSignal::HasArrived());
  }
  EXPECT_EQ(std::signal(SIGHUP, before), SIG_IGN);
}

TEST(StopOnSignalDeathTest, TheSecondOneEndsTheProcess) {
  EXPECT_EXIT(
      {
        const StopOnSignal stop(kBatchSignals);
        std::raise(SIGTERM);
        std::raise(SIGTERM);
      },
      ::testing::KilledBySignal(SIGTERM), "");
}

TEST(StopOnSignalDeathTest, ASecondOneOfAnotherKindEndsTheProcessToo) {
  EXPECT_EXIT(
      {
        const StopOnSignal stop(kBatchSignals);
        std::raise(SIGINT);
        std::raise(SIGTERM);
      },
      ::testing::KilledBySignal(SIGTERM), "");
}

TEST(StopOnSignalDeathTest, SignalsDoAsBeforeWhenItIsGone) {
  EXPECT_EXIT(
      {
        { const StopOnSignal stop(kBatchSignals); }
        std::raise(SIGINT);
      },
      ::testing::KilledBySignal(SIGINT), "");
}

}  // namespace
}  // namespace ckpt::cli

#include "tools/ckpt-train/stop_signal.h"

#include <csignal>

#include <gtest/gtest.h>

namespace ckpt::train {
namespace {

TEST(StopSignalTest, KeepsTheFirstSignalInMind) {
  for (const int signal : kStopSignals) {
    const StopSignal stop;
    EXPECT_FALSE(StopSignal::HasArrived());
    std::raise(signal);
    EXPECT_TRUE(StopSignal::HasArrived());
  }
}

TEST(StopSignalTest, LeavesAHangupIgnoredThatNohupIgnores) {
  const auto before = std::signal(SIGHUP, SIG_IGN);
  {
    const StopSignal stop;
    std::raise(SIGHUP);
    EXPECT_FALSE(StopSignal::HasArrived());
  }
  EXPECT_EQ(std::signal(SIGHUP, before), SIG_IGN);
}

TEST(StopSignalDeathTest, TheSecondOneEndsTheProcess) {
  EXPECT_EXIT(
      {
        const StopSignal stop;
        std::raise(SIGTERM);
        std::raise(SIGTERM);
      },
      ::testing::KilledBySignal(SIGTERM), "");
}

TEST(StopSignalDeathTest, SignalsDoAsBeforeWhenItIsGone) {
  EXPECT_EXIT(
      {
        { const StopSignal stop; }
        std::raise(SIGINT);
      },
      ::testing::KilledBySignal(SIGINT), "");
}

}  // namespace
}  // namespace ckpt::train

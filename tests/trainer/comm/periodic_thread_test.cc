#include "trainer/comm/periodic_thread.h"

#include <chrono>
#include <future>

#include <gtest/gtest.h>

namespace ckpt::trainer {
namespace {

TEST(PeriodicThreadTest, LooksAgainAndAgain) {
  std::promise<void> third;
  const PeriodicThread thread(std::chrono::milliseconds(1), [&third, num_looks = 0]() mutable {
    if (++num_looks == 3) third.set_value();
  });
  third.get_future().wait();
}

TEST(PeriodicThreadTest, ItsEndDoesNotWaitForThePeriod) {
  bool has_looked = false;
  {
    const PeriodicThread thread(std::chrono::hours(1), [&] { has_looked = true; });
  }
  EXPECT_FALSE(has_looked);
}

}  // namespace
}  // namespace ckpt::trainer

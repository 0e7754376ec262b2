#include "core/base/once_per_key.h"

#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using testing::FailsWith;
using testing::IsOk;

TEST(OncePerKeyTest, WhoComesMeanwhileWaits) {
  OncePerKey<int> once;
  std::atomic<int> calls = 0;
  std::atomic<int> ended = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      EXPECT_THAT(once.Run(t % 2,
                           [&] {
                             ++calls;
                             std::this_thread::yield();
                             ++ended;
                             return OkStatus();
                           }),
                  IsOk());
      EXPECT_GE(ended, 1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(calls, 2);
}

TEST(OncePerKeyTest, AnErrorIsTriedAgain) {
  OncePerKey<int> once;
  EXPECT_THAT(once.Run(1, [] { return Error(ErrorKind::kIo, "no"); }), FailsWith(ErrorKind::kIo));
  EXPECT_THAT(once.Run(1, [] { return OkStatus(); }), IsOk());
  EXPECT_THAT(once.Run(1, [] { return Error(ErrorKind::kIo, "no"); }), IsOk());
}

}  // namespace
}  // namespace ckpt

// The threads that divide the work of one call.
#include "trainer/ops/cpu/internal/parallel.h"

#include <atomic>
#include <cstdint>
#include <new>

#include <gtest/gtest.h>

#include "tests/trainer/comm/no_more_threads.h"

namespace ckpt::trainer {
namespace {

constexpr std::int64_t kCount = 1000;

// How many elements the ranges of a call have together.
std::int64_t Covered(Parallel& parallel) {
  std::atomic<std::int64_t> covered = 0;
  parallel.For(kCount, 1, [&](std::int64_t begin, std::int64_t end) { covered += end - begin; });
  return covered;
}

TEST(ParallelTest, ThrowsWhatItsBodyThrowsOnAnyThreadAndGoesOn) {
  Parallel parallel(4);
  for (std::int64_t bad = 0; bad < kCount; bad += 99) {
    const auto body = [&](std::int64_t begin, std::int64_t end) {
      if (begin <= bad && bad < end) throw std::bad_alloc();
    };
    EXPECT_THROW(parallel.For(kCount, 1, body), std::bad_alloc);
    EXPECT_EQ(Covered(parallel), kCount);
  }
}

TEST(ParallelTest, WorksWithFewerThreadsWhereThereAreNoMore) {
  const testing::NoMoreThreads limit;
  Parallel parallel(4);
  EXPECT_EQ(Covered(parallel), kCount);
  EXPECT_EQ(parallel.threads(), 4) << "by which products are divided";
}

}  // namespace
}  // namespace ckpt::trainer

#include "core/tensor/blocks.h"

#include <random>

#include <gmock/gmock.h>

#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using testing::FailsWith;
using testing::IsOk;

TEST(ForEachBlock, VisitsEveryElementOnceInCOrder) {
  std::mt19937_64 rng(11);
  for (int round = 0; round < 200; ++round) {
    Box box;
    for (std::size_t d = 0, ndim = rng() % 5; d < ndim; ++d) {
      box.offsets.push_back(static_cast<std::int64_t>(rng() % 3));
      box.sizes.push_back(static_cast<std::int64_t>(rng() % 5));
    }
    const auto limit = static_cast<std::int64_t>(1 + rng() % 20);
    const Dims strides = ContiguousStrides(box.sizes);
    std::int64_t next = 0;
    ASSERT_THAT(ForEachBlock(box, limit,
                             [&](const Box& block) {
                               // The block starts where the last one ended, and is one interval.
                               std::int64_t first = 0;
                               std::int64_t last = 0;
                               for (std::size_t d = 0; d < strides.size(); ++d) {
                                 const std::int64_t at = block.offsets[d] - box.offsets[d];
                                 first += at * strides[d];
                                 last += (at + block.sizes[d] - 1) * strides[d];
                               }
                               EXPECT_EQ(first, next);
                               if (first == 0) {
                                 EXPECT_EQ(FirstBlock(box, limit), block);
                               }
                               EXPECT_EQ(last - first + 1, NumElements(block.sizes));
                               EXPECT_LE(NumElements(block.sizes), limit);
                               next = last + 1;
                               return OkStatus();
                             }),
                IsOk());
    EXPECT_EQ(next, NumElements(box.sizes));
  }
}

TEST(ForEachBlock, StopsAtTheFirstError) {
  int calls = 0;
  EXPECT_THAT(ForEachBlock(WholeBox(Dims{10}), 1,
                           [&](const Box&) {
                             return ++calls == 3 ? Error(ErrorKind::kIo, "stop") : OkStatus();
                           }),
              FailsWith(ErrorKind::kIo));
  EXPECT_EQ(calls, 3);
}

}  // namespace
}  // namespace ckpt

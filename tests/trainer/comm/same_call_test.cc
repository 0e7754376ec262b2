#include "trainer/comm/same_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/matchers.h"

namespace ckpt::trainer {
namespace {

TEST(SameCallTest, NameAndSizeMustBeEqual) {
  const RankCall first = {.rank = 0, .name = "Exchange", .size_bytes = 8};
  EXPECT_THAT(CheckSameCall(first, {.rank = 1, .name = "Exchange", .size_bytes = 8}),
              testing::IsOk());
  EXPECT_THAT(CheckSameCall(first, {.rank = 1, .name = "Barrier", .size_bytes = 8}),
              testing::FailsWith(ErrorKind::kInternal));
  const Status longer = CheckSameCall(first, {.rank = 2, .name = "Exchange", .size_bytes = 16});
  ASSERT_THAT(longer, testing::FailsWith(ErrorKind::kInternal));
  EXPECT_EQ(longer.first().expected, "rank 0 in Exchange of 8 bytes");
  EXPECT_EQ(longer.first().actual, "rank 2 in Exchange of 16 bytes");
}

}  // namespace
}  // namespace ckpt::trainer

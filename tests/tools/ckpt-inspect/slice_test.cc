#include "tools/ckpt-inspect/slice.h"

#include <gtest/gtest.h>

#include "tests/testing/matchers.h"

namespace ckpt::inspect {
namespace {

using ::ckpt::testing::FailsWith;

TEST(ParseSliceTest, EmptyTextIsEverything) {
  const auto slice = ParseSlice("", Dims{3, 4});
  EXPECT_EQ(slice->box, WholeBox(Dims{3, 4}));
  EXPECT_EQ(slice->dims, (Dims{3, 4}));
}

TEST(ParseSliceTest, IntegerRemovesItsDim) {
  const auto slice = ParseSlice("0:2,3", Dims{3, 4});
  EXPECT_EQ(slice->box, (Box{{0, 3}, {2, 1}}));
  EXPECT_EQ(slice->dims, (Dims{2}));
}

TEST(ParseSliceTest, NegativeNumbersCountFromTheEnd) {
  EXPECT_EQ(ParseSlice("-2:,-1", Dims{5, 4})->box, (Box{{3, 3}, {2, 1}}));
}

TEST(ParseSliceTest, RangesAreClipped) {
  EXPECT_EQ(ParseSlice("-99:99", Dims{5})->box, (Box{{0}, {5}}));
  EXPECT_EQ(ParseSlice("4:2", Dims{5})->dims, (Dims{0}));
}

TEST(ParseSliceTest, RefusesAnIndexOutside) {
  EXPECT_THAT(ParseSlice("5", Dims{5}), FailsWith(ErrorKind::kUsage));
  EXPECT_THAT(ParseSlice("-6", Dims{5}), FailsWith(ErrorKind::kUsage));
}

TEST(ParseSliceTest, RefusesARangeOutside) {
  for (const char* text : {"0,5:9", "0,9:", "0,-9:-4", "0,:-7"}) {
    const auto slice = ParseSlice(text, Dims{1, 4});
    ASSERT_THAT(slice, FailsWith(ErrorKind::kUsage)) << text;
    EXPECT_EQ(slice.status().first().message, "range outside dim 1 of [1, 4]");
    EXPECT_EQ(slice.status().first().expected, "a part of 0:4");
  }
  EXPECT_EQ(ParseSlice("2:7", Dims{0})->dims, (Dims{0})) << "there is no other part";
}

TEST(ParseSliceTest, RefusesWhatIsNoSlice) {
  for (const char* text : {"a", "0:4:2", "0,0", "1.5", ",", "99999999999999999999"}) {
    EXPECT_THAT(ParseSlice(text, Dims{5}), FailsWith(ErrorKind::kUsage)) << text;
  }
}

}  // namespace
}  // namespace ckpt::inspect

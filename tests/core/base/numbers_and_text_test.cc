#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "core/base/checked_math.h"
#include "core/base/endian.h"
#include "core/base/name_list.h"
#include "core/base/quote.h"
#include "core/base/units.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using testing::FailsWith;
using testing::IsOkAndHolds;

TEST(CheckedMath, RefusesToWrap) {
  std::uint64_t out = 0;
  EXPECT_FALSE(CheckedAdd<std::uint64_t>(UINT64_MAX, 1, &out));
  EXPECT_FALSE(CheckedMul<std::uint64_t>(1ULL << 32, 1ULL << 32, &out));
  EXPECT_TRUE(CheckedMul<std::uint64_t>(1ULL << 32, 1ULL << 31, &out));
  std::int64_t signed_out = 0;
  EXPECT_FALSE(CheckedMul<std::int64_t>(INT64_MIN, -1, &signed_out));
}

TEST(CheckedMath, RangeFitsAtEveryEdge) {
  EXPECT_TRUE(RangeFits(0, 8, 8));
  EXPECT_TRUE(RangeFits(8, 0, 8));
  EXPECT_FALSE(RangeFits(1, 8, 8));
  EXPECT_FALSE(RangeFits(9, 0, 8));
  EXPECT_FALSE(RangeFits(UINT64_MAX, 2, 8));
  EXPECT_FALSE(RangeFits(2, UINT64_MAX, 8));
}

TEST(CheckedMath, CeilDivDoesNotOverflow) {
  EXPECT_EQ(CeilDiv(0, 8), 0U);
  EXPECT_EQ(CeilDiv(9, 8), 2U);
  EXPECT_EQ(CeilDiv(UINT64_MAX, 2), 1ULL << 63);
}

TEST(CheckedMath, AlignUpLeavesMultiples) {
  EXPECT_EQ(AlignUp<std::uint64_t>(0, 64), 0U);
  EXPECT_EQ(AlignUp<std::uint64_t>(64, 64), 64U);
  EXPECT_EQ(AlignUp<std::uint64_t>(65, 64), 128U);
  EXPECT_EQ(AlignUp<std::uint64_t>(UINT64_MAX - 64, 64), UINT64_MAX - 63);
  EXPECT_EQ(AlignUp<std::int64_t>(7, 3), 9);
}

TEST(NameSome, NamesAFewAndCountsTheRest) {
  const std::vector<std::string> names = {"a", "b", "c", "d"};
  EXPECT_EQ(NameSome(std::span(names).first(2)), "a, b");
  EXPECT_EQ(NameSome(names), "a, b, c and 1 more");
  EXPECT_EQ(NameSome(names, 9), "a, b, c and 6 more");
}

TEST(Endian, ReadsBothByteOrders) {
  Bytes bytes;
  AppendLe<std::uint32_t>(0x01020304, bytes);
  EXPECT_EQ(LoadLe<std::uint32_t>(bytes.data()), 0x01020304U);
  EXPECT_EQ(LoadBe<std::uint32_t>(bytes.data()), 0x04030201U);
}

TEST(ByteSize, ReadsIecAndSiUnits) {
  EXPECT_THAT(ParseByteSize("4096"), IsOkAndHolds(4096U));
  EXPECT_THAT(ParseByteSize("512MiB"), IsOkAndHolds(512U * kMiB));
  EXPECT_THAT(ParseByteSize("5GB"), IsOkAndHolds(5'000'000'000U));
  EXPECT_THAT(ParseByteSize("1g"), IsOkAndHolds(kGiB));
  for (const char* bad : {"", "x", "-1", "1XB", "1MiBB", "1e30"}) {
    EXPECT_THAT(ParseByteSize(bad), FailsWith(ErrorKind::kUsage)) << bad;
  }
}

TEST(ByteSize, PrintsOneDecimal) {
  EXPECT_EQ(FormatByteSize(512), "512 B");
  EXPECT_EQ(FormatByteSize(15 * kGiB + kGiB / 10), "15.1 GiB");
}

TEST(Quote, MakesTerminalsSafe) {
  EXPECT_EQ(EscapeControls("a\x1b[0m\n"), "a\\x1b[0m\\x0a");
  EXPECT_EQ(EscapeControls("é\xff"), "é\\xff");
  EXPECT_EQ(Quote("a\"b\\"), "\"a\\\"b\\\\\"");
  EXPECT_LT(Quote(std::string(1000, 'x'), 100).size(), 120U);
}

TEST(Utf8, RefusesSurrogatesAndOverlongForms) {
  EXPECT_TRUE(IsUtf8("a\xC3\xA9\xF0\x9F\x98\x80"));
  EXPECT_FALSE(IsUtf8("\xED\xA0\x80"));
  EXPECT_FALSE(IsUtf8("\xC0\x80"));
  EXPECT_FALSE(IsUtf8("\xE2\x82"));
}

}  // namespace
}  // namespace ckpt

#include "core/base/text_number.h"

#include <cstdint>

#include <gmock/gmock.h>

namespace ckpt {
namespace {

using ::testing::Optional;

TEST(TextNumberTest, IsAllOfTheText) {
  EXPECT_THAT(ParseNumber<int>("-12"), Optional(-12));
  EXPECT_THAT(ParseNumber<double>("2.5e3"), Optional(2500.0));
  EXPECT_THAT(ParseNumber<std::uint64_t>("18446744073709551615"), Optional(UINT64_MAX));
  for (const char* text : {"", "-", "+1", " 1", "1 ", "1x", "x1", "1.0", "18446744073709551616"}) {
    EXPECT_EQ(ParseNumber<std::uint64_t>(text), std::nullopt) << text;
  }
}

TEST(TextNumberTest, IsTakenOffTheFront) {
  std::string_view text = "rank_12.pt";
  EXPECT_FALSE(TakePrefix("world_", text));
  EXPECT_TRUE(TakePrefix("rank_", text));
  EXPECT_THAT(TakeNumber<int>(text), Optional(12));
  EXPECT_EQ(text, ".pt");
  EXPECT_EQ(TakeNumber<int>(text), std::nullopt);
  EXPECT_EQ(text, ".pt");
}

}  // namespace
}  // namespace ckpt

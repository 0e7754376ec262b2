// The text that older opcodes carry, at every border of what is well formed.
#include "formats/pickle/internal/text.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

namespace ckpt::pickle {
namespace {

using ::testing::Optional;
using namespace std::string_literals;

TEST(PickleTextTest, Utf8OfEveryLengthMayHoldSurrogates) {
  for (const char* text : {"", "plain text of more than eight bytes", "\x7F", "\xC2\x80",
                           "\xDF\xBF", "\xE0\xA0\x80", "\xED\xA0\x80", "\xEF\xBF\xBF",
                           "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF", "eight bytes, then \xC3\xA9"}) {
    EXPECT_TRUE(IsPickledUtf8(text)) << text;
  }
}

TEST(PickleTextTest, RefusesWhatNoEncoderWrites) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"continuation first", "\x80"},
      {"overlong 2", "\xC1\xBF"},
      {"overlong 3", "\xE0\x9F\xBF"},
      {"overlong 4", "\xF0\x8F\xBF\xBF"},
      {"past the last code point", "\xF4\x90\x80\x80"},
      {"lead past the last", "\xF5\x80\x80\x80"},
      {"cut 2", "\xC3"},
      {"cut 3", "\xE2\x82"},
      {"cut 4", "\xF0\x90\x80"},
      {"no continuation", "\xC3("},
      {"no second continuation", "\xE2\x82("},
  };
  for (const auto& [name, text] : cases) EXPECT_FALSE(IsPickledUtf8(text)) << name;
}

TEST(PickleTextTest, CodePointsGrowAtTheirBorders) {
  const auto utf8 = [](char32_t code) {
    std::string out;
    AppendCodePoint(code, out);
    return out;
  };
  EXPECT_EQ(utf8(0x7F), "\x7F");
  EXPECT_EQ(utf8(0x80), "\xC2\x80");
  EXPECT_EQ(utf8(0x7FF), "\xDF\xBF");
  EXPECT_EQ(utf8(0x800), "\xE0\xA0\x80");
  EXPECT_EQ(utf8(0xFFFF), "\xEF\xBF\xBF");
  EXPECT_EQ(utf8(0x10000), "\xF0\x90\x80\x80");
  EXPECT_EQ(utf8(0x10FFFF), "\xF4\x8F\xBF\xBF");
}

TEST(PickleTextTest, UnicodeEscapes) {
  EXPECT_THAT(DecodeRawUnicodeEscape("a\xE9\\u00E9\\u20ac"), Optional("aéé€"s));
  EXPECT_THAT(DecodeRawUnicodeEscape("\\U0001F600\\U0010ffff"), Optional("😀\xF4\x8F\xBF\xBF"s));
  // Only \u and \U mean something.
  EXPECT_THAT(DecodeRawUnicodeEscape("\\n\\x41\\"), Optional("\\n\\x41\\"s));
  for (const char* line : {"\\u12", "\\u", "\\U0001F60", "\\uXYZW", "\\u12g4", "\\u12G4", "\\u:000",
                           "\\u@000", "\\u`000", "\\u/000", "\\U00110000"}) {
    EXPECT_EQ(DecodeRawUnicodeEscape(line), std::nullopt) << line;
  }
}

TEST(PickleTextTest, StringLiterals) {
  EXPECT_THAT(DecodeStringLiteral("''"), Optional(""s));
  EXPECT_THAT(DecodeStringLiteral("\"it's\""), Optional("it's"s));
  EXPECT_THAT(DecodeStringLiteral(R"('\a\b\f\n\r\t\v\\\'\"')"), Optional("\a\b\f\n\r\t\v\\'\""s));
  EXPECT_THAT(DecodeStringLiteral(R"('\x00\xfF.')"), Optional("\0\xFF."s));
  for (const char* line : {"", "'", "a", "aa", "'a\"", "\"a'", "`a`", R"('\')", R"('\x4')",
                           R"('\x')", R"('\xg0')", R"('\q')", R"('\0')"}) {
    EXPECT_EQ(DecodeStringLiteral(line), std::nullopt) << line;
  }
}

TEST(PickleTextTest, DecimalsAreAsShortAsTheirSignAllows) {
  const std::vector<std::pair<const char*, std::string>> cases = {
      {"0", ""},          {"-0", ""},       {"+5", "\5"},         {"127", "\x7F"},
      {"128", "\x80\0"s}, {"-128", "\x80"}, {"-129", "\x7F\xFF"}, {"255", "\xFF\0"s},
      {"-255", "\1\xFF"}, {"256", "\0\1"s}, {"-256", "\0\xFF"s},  {"0000065536", "\0\0\1"s},
  };
  for (const auto& [digits, bytes] : cases) {
    EXPECT_THAT(DecodeDecimal(digits), Optional(bytes)) << digits;
  }
  for (const char* digits : {"", "-", "+", "--1", "1-", "12a", "1/", "1:", " 1"}) {
    EXPECT_EQ(DecodeDecimal(digits), std::nullopt) << digits;
  }
  // CPython's own limit.
  EXPECT_NE(DecodeDecimal(std::string(4300, '9')), std::nullopt);
  EXPECT_EQ(DecodeDecimal(std::string(4301, '9')), std::nullopt);
}

TEST(PickleTextTest, IntegersComeBackAsTheirDigits) {
  for (const std::string& digits :
       {"0"s, "1"s, "-1"s, "999999999"s, "1000000000"s, "-4294967296"s, "18446744073709551616"s,
        "-170141183460469231731687303715884105728"s, std::string(4300, '7')}) {
    EXPECT_EQ(FormatBigInt(DecodeDecimal(digits).value()), digits);
  }
  EXPECT_EQ(FormatBigInt(std::string(9, '\xFF')), "-1");
}

}  // namespace
}  // namespace ckpt::pickle

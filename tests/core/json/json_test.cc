#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "core/json/json_copy.h"
#include "core/json/json_reader.h"
#include "core/json/json_scanner.h"
#include "core/json/json_writer.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using testing::FailsWith;
using testing::IsOk;
using testing::IsOkAndHolds;

TEST(JsonReader, SaysWhereAndWhatIsWrong) {
  const auto json = JsonDocument::Parse(R"({"a":{"b":[1,-2]}})", "f");
  ASSERT_THAT(json, IsOk());
  const JsonCursor array = json->root().At("a")->At("b").value();
  EXPECT_THAT(array.Int64Array(), IsOkAndHolds(::testing::ElementsAre(1, -2)));
  const JsonCursor negative = array.Items().value()[1];
  const auto value = negative.Uint64();
  ASSERT_THAT(value, FailsWith(ErrorKind::kBadMetadata));
  EXPECT_THAT(value.status().first().message, ::testing::HasSubstr("/a/b/1"));
  EXPECT_EQ(value.status().first().actual, "integer -2");
}

TEST(JsonReader, RefusesNumbersThatAreNoIntegers) {
  const auto json = JsonDocument::Parse("[1.5,1e3,18446744073709551616,9223372036854775808]", "f");
  ASSERT_THAT(json, IsOk());
  const std::vector<JsonCursor> items = json->root().Items().value();
  for (const JsonCursor& item : items) EXPECT_FALSE(item.Int64().ok()) << item.where();
  EXPECT_THAT(items[3].Uint64(), IsOkAndHolds(9223372036854775808ULL));
  EXPECT_FALSE(items[2].Uint64().ok());
  const auto array = JsonDocument::Parse("[9223372036854775807,9223372036854775808]", "f");
  ASSERT_THAT(array, IsOk());
  const auto values = array->root().Int64Array();
  ASSERT_THAT(values, FailsWith(ErrorKind::kBadMetadata));
  EXPECT_THAT(values.status().first().message, ::testing::HasSubstr("/1"));
}

TEST(JsonReader, RefusesDuplicatesDepthAndGarbage) {
  EXPECT_THAT(JsonDocument::Parse(R"({"a":1,"a":2})", "f"), FailsWith(ErrorKind::kBadMetadata));
  EXPECT_THAT(JsonDocument::Parse("{} x", "f"), FailsWith(ErrorKind::kBadMetadata));
  EXPECT_THAT(JsonDocument::Parse("", "f"), FailsWith(ErrorKind::kBadMetadata));
  EXPECT_THAT(JsonDocument::Parse("\"\xFF\"", "f"), FailsWith(ErrorKind::kBadMetadata));
  EXPECT_THAT(JsonDocument::Parse(std::string(100, '['), "f"), FailsWith(ErrorKind::kResource));
  EXPECT_THAT(JsonDocument::Parse("[1,2,3]", "f", {.max_bytes = 3}),
              FailsWith(ErrorKind::kResource));
}

TEST(JsonReader, TakesWhatIsJustWithinItsLimits) {
  EXPECT_THAT(JsonDocument::Parse("[1,2,3]", "f", {.max_bytes = 7}), IsOk());
  EXPECT_THAT(JsonDocument::Parse("[[[]]]", "f", {.max_depth = 3}), IsOk());
  EXPECT_THAT(JsonDocument::Parse("[[[[]]]]", "f", {.max_depth = 3}),
              FailsWith(ErrorKind::kResource));
  const auto largest = JsonDocument::Parse("9223372036854775807", "f");
  ASSERT_THAT(largest, IsOk());
  EXPECT_THAT(largest->root().Int64(), IsOkAndHolds(INT64_MAX));
}

// Every way of asking, of every kind of value.
TEST(JsonReader, NamesTheKindThatItFound) {
  const auto json =
      JsonDocument::Parse(R"([null,true,-1,9223372036854775808,1.5,"t",[1],{"k":1}])", "f");
  ASSERT_THAT(json, IsOk());
  const std::vector<JsonCursor> items = json->root().Items().value();
  const std::vector<std::string> kinds = {
      "null",       "boolean",      "integer -1", "integer 9223372036854775808",
      "number 1.5", "string \"t\"", "array",      "object"};
  ASSERT_EQ(items.size(), kinds.size());
  const auto actual = [](const Status& status) {
    return status.ok() ? std::string("OK") : status.first().actual;
  };
  for (std::size_t i = 0; i < items.size(); ++i) {
    SCOPED_TRACE(kinds[i]);
    const JsonCursor& item = items[i];
    const auto ok_for = [&](std::vector<std::size_t> which) {
      const bool is_ok = std::find(which.begin(), which.end(), i) != which.end();
      return is_ok ? std::string("OK") : kinds[i];
    };
    EXPECT_EQ(actual(item.Bool().status()), ok_for({1}));
    EXPECT_EQ(actual(item.Int64().status()), ok_for({2}));
    EXPECT_EQ(actual(item.Uint64().status()), ok_for({3}));
    EXPECT_EQ(actual(item.Double().status()), ok_for({2, 3, 4}));
    EXPECT_EQ(actual(item.Text().status()), ok_for({5}));
    EXPECT_EQ(actual(item.Int64Array().status()), ok_for({6}));
    EXPECT_EQ(actual(item.Items().status()), ok_for({6}));
    EXPECT_EQ(actual(item.Members().status()), ok_for({7}));
    EXPECT_EQ(actual(item.At("k").status()), ok_for({7}));
    EXPECT_EQ(item.Find("k").has_value(), i == 7);
  }
  EXPECT_THAT(items[7].At("absent"), FailsWith(ErrorKind::kBadMetadata));
  EXPECT_THAT(json->root().Int64Array(), FailsWith(ErrorKind::kBadMetadata));
}

TEST(JsonReader, RoundsNoIntegerToADouble) {
  const auto double_of = [](const char* text) {
    const auto json = JsonDocument::Parse(text, "f");
    return json.ok() ? json->root().Double() : Result<double>(json.status());
  };
  EXPECT_THAT(double_of("0"), IsOkAndHolds(0.0));
  EXPECT_THAT(double_of("-9007199254740992"), IsOkAndHolds(-0x1p53));
  EXPECT_THAT(double_of("-9223372036854775808"), IsOkAndHolds(-0x1p63));
  EXPECT_THAT(double_of("9223372036854775808"), IsOkAndHolds(0x1p63));
  for (const char* text :
       {"9007199254740993", "-9007199254740993", "9223372036854775807", "18446744073709551615"}) {
    EXPECT_THAT(double_of(text), FailsWith(ErrorKind::kBadMetadata)) << text;
  }
}

TEST(JsonWriter, WritesCompactAndIndented) {
  const auto write = [](int indent) {
    JsonWriter json(indent);
    json.BeginObject().Key("a").BeginArray().Int(1).Double(2).End();
    json.Key("empty").BeginObject().End().Key("t").Text("x\"\n").Key("i").Ints(std::vector{1, 2});
    return json.End().Take();
  };
  EXPECT_EQ(write(0), R"({"a":[1,2.0],"empty":{},"t":"x\"\n","i":[1,2]})");
  EXPECT_EQ(write(2),
            "{\n  \"a\": [\n    1,\n    2.0\n  ],\n  \"empty\": {},\n  \"t\": \"x\\\"\\n\",\n"
            "  \"i\": [1, 2]\n}");
}

TEST(JsonWriter, EscapesControlsAndReplacesWhatIsNoText) {
  EXPECT_EQ(JsonQuote("\x1f ~\x7f\t\\"), R"("\u001f ~\u007f\t\\")");
  EXPECT_EQ(JsonQuote("\xC2\x80"), "\"\xC2\x80\"");
  EXPECT_EQ(JsonQuote("a\x80z"), "\"a\xEF\xBF\xBDz\"");
}

TEST(JsonWriter, NumbersReadBackAsTheSameDouble) {
  for (const double value : {0.1, 1e300, -0.0, 5e-324, 1.0 / 3}) {
    EXPECT_EQ(std::strtod(JsonNumber(value).c_str(), nullptr), value);
  }
}

TEST(JsonScanner, WalksADocument) {
  JsonScanner scan(R"( {"a" : [1, -2], "é\u00e9\ud83d\ude00\n": "x", "skip": [{"y":[null,1e5]}]} )",
                   "f");
  std::string key;
  std::vector<std::string> keys;
  for (scan.BeginObject(); scan.NextMember(key);) {
    keys.push_back(key);
    if (key == "a") {
      EXPECT_THAT(scan.Ints(), ::testing::ElementsAre(1, -2));
    } else {
      scan.Skip();
    }
  }
  EXPECT_THAT(scan.Finish(), IsOk());
  EXPECT_THAT(keys, ::testing::ElementsAre("a", "éé😀\n", "skip"));
}

TEST(JsonScanner, RefusesWhatIsNoJson) {
  for (const std::string& bad : {std::string("["),
                                 std::string("[1 2]"),
                                 std::string("[1,]"),
                                 std::string("[01]"),
                                 std::string("[+1]"),
                                 std::string("[\"\n\"]"),
                                 std::string("[\"\\x\"]"),
                                 std::string("[\"\\ud800\"]"),
                                 std::string("[\"\\ud800\\u0041\"]"),
                                 std::string("[\"\\ud800\\ue000\"]"),
                                 std::string("[\"\\udc00\\udc00\"]"),
                                 std::string("[\"\\ude00\"]"),
                                 std::string("-"),
                                 std::string("1."),
                                 std::string("1e"),
                                 std::string("[1.]"),
                                 std::string("[nul]"),
                                 std::string("[1]]"),
                                 std::string("{\"a\" 1}"),
                                 std::string("{a:1}"),
                                 std::string(100, '['),
                                 std::string("[\"\xFF\"]"),
                                 std::string("")}) {
    JsonScanner scan(bad, "f");
    scan.Skip();
    EXPECT_FALSE(scan.Finish().ok()) << bad;
  }
}

TEST(JsonScanner, DecodesEscapesOfEveryLength) {
  for (const auto& [escaped, text] :
       std::vector<std::pair<std::string, std::string>>{{R"(\u007f)", "\x7f"},
                                                        {R"(\u0080)", "\xC2\x80"},
                                                        {R"(\u07ff)", "\xDF\xBF"},
                                                        {R"(\u0800)", "\xE0\xA0\x80"},
                                                        {R"(\ud7ff)", "\xED\x9F\xBF"},
                                                        {R"(\ue000)", "\xEE\x80\x80"},
                                                        {R"(\uffff)", "\xEF\xBF\xBF"},
                                                        {R"(\uFAaf)", "\xEF\xAA\xAF"},
                                                        {R"(\ud800\udc00)", "\xF0\x90\x80\x80"},
                                                        {R"(\uDBFF\uDFFF)", "\xF4\x8F\xBF\xBF"}}) {
    const std::string quoted = "\"" + escaped + "\"";
    JsonScanner scan(quoted, "f");
    EXPECT_EQ(scan.Text(), text) << escaped;
    EXPECT_THAT(scan.Finish(), IsOk());
    EXPECT_THAT(JsonDocument::Parse(quoted, "f")->root().Text(), IsOkAndHolds(text)) << escaped;
  }
}

// What lies behind the text in memory is not looked at.
TEST(JsonScanner, EndsWhereItsTextDoes) {
  for (const std::string_view whole : {R"({"a":["b\n",12,true,null,{}]})", R"("text")"}) {
    for (std::size_t size = 0; size < whole.size(); ++size) {
      JsonScanner scan(whole.substr(0, size), "f");
      scan.Skip();
      EXPECT_FALSE(scan.Finish().ok()) << size << " of " << whole;
    }
    EXPECT_EQ(JsonScanner(whole.substr(0, 0), "f").Peek(), JsonKind::kNull);
  }
}

TEST(JsonScanner, BoundsDepthAndNumbers) {
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  const std::string deepest = nested(64);
  JsonScanner within(deepest, "f");
  within.Skip();
  EXPECT_THAT(within.Finish(), IsOk());
  const std::string deeper = nested(65);
  JsonScanner beyond(deeper, "f");
  beyond.Skip();
  EXPECT_THAT(beyond.Finish(), FailsWith(ErrorKind::kResource));

  JsonScanner largest("9223372036854775807", "f");
  EXPECT_EQ(largest.Int(), INT64_MAX);
  EXPECT_THAT(largest.Finish(), IsOk());
  JsonScanner larger("9223372036854775808", "f");
  EXPECT_EQ(larger.Int(), 0);
  EXPECT_THAT(larger.Finish(), FailsWith(ErrorKind::kBadMetadata));
}

TEST(JsonScanner, ReadsANumberThatEndsTheDocument) {
  for (const char* number : {"0", "12", "-3", "1.5", "2e1", "2E+10"}) {
    JsonScanner scan(number, "f");
    scan.Skip();
    EXPECT_THAT(scan.Finish(), IsOk()) << number;
  }
}

TEST(JsonScanner, KeepsTheFirstError) {
  JsonScanner scan("[1.5, \"x\"]", "f");
  scan.BeginArray();
  scan.NextItem();
  EXPECT_EQ(scan.Uint(), 0U);
  EXPECT_FALSE(scan.NextItem());
  EXPECT_EQ(scan.Text(), "");
  scan.Fail(ErrorKind::kResource, "later");
  EXPECT_THAT(scan.Finish(), FailsWith(ErrorKind::kBadMetadata));
}

TEST(JsonScanner, AgreesWithTheReaderOnEveryByteChange) {
  const std::string text = R"({"a":[1,-2.5e3,true,null],"b":{"c":"x\n\u0041"}})";
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (int value = 0; value < 256; ++value) {
      std::string changed = text;
      changed[i] = static_cast<char>(value);
      JsonScanner scan(changed, "f");
      scan.Skip();
      // The reader also refuses repeated keys, which the scanner leaves to its caller.
      const Status status = JsonDocument::Parse(changed, "f").status();
      const bool repeated = !status.ok() && status.first().message == "duplicate JSON key";
      ASSERT_EQ(scan.Finish().ok(), status.ok() || repeated) << changed;
    }
  }
}

TEST(JsonCopy, APartOfADocumentIsTheSameInAnother) {
  constexpr std::string_view kText =
      R"({"a":[null,true,-3,18446744073709551615,0.5,1e300,"\u00e4\""],"b":{"z":{},"y":[]}})";
  const auto document = JsonDocument::Parse(kText, "x");
  ASSERT_THAT(document, IsOk());
  JsonWriter json;
  json.BeginObject().Key("copy");
  ASSERT_THAT(CopyJson(document->root(), json), IsOk());
  json.End();
  const auto copied = JsonDocument::Parse(json.Take(), "y");
  ASSERT_THAT(copied, IsOk());
  JsonWriter again;
  ASSERT_THAT(CopyJson(*copied->root().At("copy"), again), IsOk());
  EXPECT_EQ(again.Take(),
            R"({"a":[null,true,-3,18446744073709551615,0.5,1e+300,"ä\""],"b":{"z":{},"y":[]}})");
}

}  // namespace
}  // namespace ckpt

// Where two objects differ first, and how `diff` says it.
#include "tools/ckpt-inspect/object_diff.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/json/json_reader.h"
#include "tests/testing/matchers.h"
#include "tests/tools/ckpt-inspect/fake_source.h"
#include "tools/ckpt-inspect/diff_report.h"
#include "tools/cli/text_output.h"

namespace ckpt::inspect {
namespace {

using ::ckpt::testing::FakeSource;
using ::ckpt::testing::IsOk;
using ::testing::HasSubstr;

// `text` of the object "o", and tensors that it does not show.
RenderedObject Object(std::string text, std::vector<HeldTensor> held = {}) {
  return {.type = "dict", .json = std::move(text), .warnings = {}, .held = std::move(held)};
}

FakeSource Holding(RenderedObject object) {
  FakeSource source;
  source.AddObject("o", std::move(object));
  source.Finish();
  return source;
}

ObjectDiff Diff(RenderedObject a, RenderedObject b) {
  return DiffObjects(Holding(std::move(a)), Holding(std::move(b)));
}

// What `diff` prints of two objects that differ, without the last line.
struct Printed {
  std::string text;
  std::string json;
};

Printed Print(const RenderedObject& a, const RenderedObject& b) {
  const Comparison comparison;
  const FakeSource of_a = Holding(a);
  const FakeSource of_b = Holding(b);
  Differences findings;
  findings.comparison = &comparison;
  findings.index_a = &of_a.index();
  findings.index_b = &of_b.index();
  findings.objects = DiffObjects(of_a, of_b);
  cli::StringOutput text;
  cli::StringOutput json;
  cli::Streams people = {.out = text, .err = text};
  cli::Streams scripts = {.out = json, .err = json};
  PrintDifferences(findings, people);
  PrintDifferencesJson(findings, scripts);
  return {.text = text.text().substr(0, text.text().rfind("equal: ")), .json = json.text()};
}

// A text of `bytes` with one other character.
std::string LongText(std::size_t bytes, std::size_t at, char other) {
  std::string text(bytes, '0');
  text[at] = other;
  return '"' + text + '"';
}

struct PlaceCase {
  const char* name;
  const char* a;
  const char* b;
  const char* pointer;
  std::optional<std::string> in_a;
  std::optional<std::string> in_b;
  std::int64_t places = 1;
};
void PrintTo(const PlaceCase& c, std::ostream* os) { *os << c.name; }

class DifferingPlaceTest : public ::testing::TestWithParam<PlaceCase> {};

TEST_P(DifferingPlaceTest, IsNamed) {
  const PlaceCase& test = GetParam();
  const ObjectDiff diff = Diff(Object(test.a), Object(test.b));
  ASSERT_EQ(diff.different.size(), 1U);
  const DifferingObject& object = diff.different[0];
  EXPECT_EQ(object.key, "o");
  EXPECT_EQ(object.what, ObjectDifference::kValues);
  ASSERT_TRUE(object.first);
  EXPECT_EQ(object.first->pointer, test.pointer);
  EXPECT_EQ(object.first->a, test.in_a);
  EXPECT_EQ(object.first->b, test.in_b);
  EXPECT_EQ(object.num_places, test.places);
}

INSTANTIATE_TEST_SUITE_P(
    Objects, DifferingPlaceTest,
    ::testing::Values(
        PlaceCase{"Number", "1", "2", "", "1", "2"},
        PlaceCase{"IntAndFloat", "[1]", "[1.0]", "/0", "1", "1.0"},
        PlaceCase{"NegativeZero", "[0.0]", "[-0.0]", "/0", "0.0", "-0.0"},
        PlaceCase{"BoolAndInt", "[true]", "[1]", "/0", "true", "1"},
        PlaceCase{"NullAndNothing", R"({"x":null})", "{}", "/x", "null", std::nullopt},
        PlaceCase{"Kinds", R"({"x":{"y":1}})", R"({"x":[1]})", "/x", R"({"y":1})", "[1]"},
        PlaceCase{"InBAlone", R"({"x":1})", R"({"y":{"z":2},"x":1})", "/y", std::nullopt,
                  R"({"z":2})"},
        PlaceCase{"TheFirstInTheOrderOfA", R"({"x":1,"y":[2,3],"z":4})",
                  R"({"z":5,"y":[2,4],"x":1})", "/y/1", "3", "4", 2},
        PlaceCase{"ShorterList", "[1,2,3]", "[1]", "/1", "2", std::nullopt, 2},
        PlaceCase{"LongerList", "[1]", "[1,2]", "/1", std::nullopt, "2"},
        PlaceCase{"NamesOfPointers", R"({"a/b":{"~":1}})", R"({"a/b":{"~":2}})", "/a~1b/~0", "1",
                  "2"},
        PlaceCase{"Attributes",
                  R"({"$object":{"class":"argparse.Namespace","state":{"lr":0.1,"seed":1}}})",
                  R"({"$object":{"class":"argparse.Namespace","state":{"lr":0.2,"seed":1}}})",
                  "/$object/state/lr", "0.1", "0.2"},
        PlaceCase{"OtherTypes", R"([{"$tuple":[1]}])", R"([{"$size":[1]}])", "/0",
                  R"({"$tuple":[1]})", R"({"$size":[1]})"},
        PlaceCase{"PlainAndTagged", R"({"x":1})", R"({"$dict":[[1,1]]})", "", R"({"x":1})",
                  R"({"$dict":[[1,1]]})"},
        // Keys of any kind stand for the same, wherever they are.
        PlaceCase{"PairsByTheirKeys", R"({"$dict":[[1,"a"],[{"$tuple":[2]},"b"]]})",
                  R"({"$dict":[[{"$tuple":[2]},"c"],[1,"a"]]})", "/$dict/1/1", R"("b")", R"("c")"},
        PlaceCase{"PairInAAlone", R"({"$ordered_dict":[["x",1],["y",2]]})",
                  R"({"$ordered_dict":[["x",1]]})", "/$ordered_dict/1", R"(["y",2])", std::nullopt},
        PlaceCase{"PairInBAlone", R"({"$dict":[[1,1]]})", R"({"$dict":[[0,0],[1,1]]})", "/$dict/0",
                  std::nullopt, "[0,0]"},
        // Which of two keys that look alike stands for which is not known.
        PlaceCase{"KeysThatLookAlike", R"({"$dict":[[{"$opaque":"m.K"},1],[{"$opaque":"m.K"},2]]})",
                  R"({"$dict":[[{"$opaque":"m.K"},2],[{"$opaque":"m.K"},1]]})", "/$dict/0/1", "1",
                  "2", 2},
        PlaceCase{"NoPairs", R"({"$dict":[1]})", R"({"$dict":[2]})", "/$dict/0", "1", "2"}),
    [](const auto& test) { return std::string(test.param.name); });

struct OrderCase {
  const char* name;
  const char* a;
  const char* b;
  const char* pointer;
};
void PrintTo(const OrderCase& c, std::ostream* os) { *os << c.name; }

class KeyOrderTest : public ::testing::TestWithParam<OrderCase> {};

TEST_P(KeyOrderTest, IsToldApartFromValues) {
  const OrderCase& test = GetParam();
  const ObjectDiff diff = Diff(Object(test.a), Object(test.b));
  ASSERT_EQ(diff.different.size(), 1U);
  const DifferingObject& object = diff.different[0];
  EXPECT_EQ(object.what, ObjectDifference::kKeyOrder);
  ASSERT_TRUE(object.first);
  EXPECT_EQ(object.first->pointer, test.pointer);
  EXPECT_FALSE(object.first->a);
  EXPECT_FALSE(object.first->b);
  EXPECT_EQ(object.num_places, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Objects, KeyOrderTest,
    ::testing::Values(OrderCase{"OfAll", R"({"x":1,"y":2})", R"({"y":2,"x":1})", ""},
                      OrderCase{"OfAMember", R"({"p":[{"x":1,"y":2}]})", R"({"p":[{"y":2,"x":1}]})",
                                "/p/0"},
                      OrderCase{"OfPairs", R"({"$dict":[[1,"a"],[2,"b"]]})",
                                R"({"$dict":[[2,"b"],[1,"a"]]})", ""},
                      OrderCase{"OfAnOrderedDict", R"([{"$ordered_dict":[["x",1],["y",2]]}])",
                                R"([{"$ordered_dict":[["y",2],["x",1]]}])", "/0"},
                      OrderCase{"TheOutermost", R"({"x":{"p":1,"q":2},"y":2})",
                                R"({"y":2,"x":{"q":2,"p":1}})", ""}),
    [](const auto& test) { return std::string(test.param.name); });

HeldTensor Tensor(const std::string& path, const std::string& sha256) {
  return {.path = path, .shape = {2}, .dtype = DType::kFloat32, .sha256 = sha256};
}

TEST(ObjectDiffTest, NamesATensorThatTheTextDoesNotShow) {
  const std::string text = R"({"x":{"$opaque":"m.C"},"y":{"$opaque":"m.C"}})";
  const ObjectDiff diff = Diff(Object(text, {Tensor("x.w", "00"), Tensor("y.w", "11")}),
                               Object(text, {Tensor("x.w", "00"), Tensor("y.w", "12")}));
  ASSERT_EQ(diff.different.size(), 1U);
  EXPECT_EQ(diff.different[0].what, ObjectDifference::kTensors);
  EXPECT_FALSE(diff.different[0].first);
  EXPECT_EQ(diff.different[0].tensor_a, Tensor("y.w", "11"));
  EXPECT_EQ(diff.different[0].tensor_b, Tensor("y.w", "12"));

  const ObjectDiff lacking =
      Diff(Object(text, {Tensor("y.w", "11")}), Object(text, {Tensor("x.w", "00")}));
  ASSERT_EQ(lacking.different.size(), 1U);
  EXPECT_EQ(lacking.different[0].tensor_a, std::nullopt);
  EXPECT_EQ(lacking.different[0].tensor_b, Tensor("x.w", "00"));
}

// Tensors come in the order of the keys. So these are the same, and the third is not.
TEST(ObjectDiffTest, AnotherOrderOfKeysIsOneOfTensorsToo) {
  const Printed same = Print(Object(R"({"x":1,"y":2})", {Tensor("x", "00"), Tensor("y", "11")}),
                             Object(R"({"y":2,"x":1})", {Tensor("y", "11"), Tensor("x", "00")}));
  EXPECT_THAT(same.json, HasSubstr(R"("what": "key_order")"));
  const Printed other = Print(Object(R"({"x":1,"y":2})", {Tensor("x", "00"), Tensor("y", "11")}),
                              Object(R"({"y":2,"x":1})", {Tensor("y", "12"), Tensor("x", "00")}));
  EXPECT_THAT(other.json, HasSubstr(R"("what": "tensors")"));
  EXPECT_THAT(other.json, HasSubstr(R"("first_tensor": "y")"));
}

// What is no JSON, too deep or too large is shown where the texts differ.
TEST(ObjectDiffTest, LooksForNoPlaceInWhatItCannotParse) {
  const std::string large(std::size_t{3} << 20, ' ');
  for (const auto& [a, b] : {std::pair<std::string, std::string>(R"({"x":1,"x":1})", R"({"x":2})"),
                             {std::string(600, '[') + std::string(600, ']'), "[]"},
                             {'[' + large + "1]", '[' + large + "2]"}}) {
    const ObjectDiff diff = Diff(Object(a), Object(b));
    ASSERT_EQ(diff.different.size(), 1U);
    EXPECT_EQ(diff.different[0].what, ObjectDifference::kValues);
    EXPECT_FALSE(diff.different[0].first);
  }
  EXPECT_THAT(Print(Object('[' + large + "1]"), Object('[' + large + "2]")).text,
              ::testing::EndsWith(" 1] and …                              2]\n"));
}

// The place of each of many values would say a long key again.
TEST(ObjectDiffTest, LooksForNoPlaceBelowLongKeys) {
  const auto with = [](std::size_t key, const std::string& last) {
    std::string members;
    for (int i = 0; i < 4'000; ++i) members += fmt::format(R"("k{}":0,)", i);
    return fmt::format(R"({{"{}":{{{}"z":{}}}}})", std::string(key, 'a'), members, last);
  };
  EXPECT_TRUE(Diff(Object(with(1'000, "1")), Object(with(1'000, "2"))).different[0].first);
  EXPECT_FALSE(Diff(Object(with(8'000, "1")), Object(with(8'000, "2"))).different[0].first);
}

TEST(ObjectDiffTest, SaysInALineWhereLongObjectsDiffer) {
  std::string members;
  for (int i = 0; i < 80; ++i) members += fmt::format(R"("k{}":{},)", i, i);
  const auto with = [&](const std::string& last) { return '{' + members + last + '}'; };
  EXPECT_EQ(Print(Object(with(R"("x":40)")), Object(with(R"("x":-1)"))).text,
            "differs     o  (object): at /x: 40 and -1\n");
  EXPECT_EQ(Print(Object(with(R"("x":40,"y":1)")), Object(with(R"("x":-1)"))).text,
            "differs     o  (object): 2 places, first at /x: 40 and -1\n");
  EXPECT_EQ(Print(Object(with(R"("x":40)")), Object(with(R"("x":40,"y":[])"))).text,
            "differs     o  (object): at /y: nothing and []\n");
  EXPECT_EQ(Print(Object(with(R"("x":{"p":1,"q":2})")), Object(with(R"("x":{"q":2,"p":1})"))).text,
            "differs     o  (object): another order of keys at /x\n");
  EXPECT_EQ(Print(Object(with(R"("x":1,"y":2)")), Object(with(R"("y":2,"x":1)"))).text,
            "differs     o  (object): another order of keys\n");
  EXPECT_EQ(Print(Object(with(R"("x":1)"), {Tensor("t", "0a")}), Object(with(R"("x":1)"))).text,
            "differs     o  (object): first in the tensor t: float32[2] sha256 0a and nothing\n");
}

// Short objects are shown whole.
TEST(ObjectDiffTest, ShowsShortObjects) {
  EXPECT_EQ(Print(Object(R"({"x":1,"y":2})"), Object(R"({"x":1,"y":3})")).text,
            "differs     o  (object): {\"x\":1,\"y\":2} and {\"x\":1,\"y\":3}\n");
  EXPECT_EQ(
      Print(Object(R"({"x":1,"y":2})"), Object(R"({"y":2,"x":1})")).text,
      "differs     o  (object): another order of keys: {\"x\":1,\"y\":2} and {\"y\":2,\"x\":1}\n");
}

// Of a long value what is around the difference, and whole characters.
TEST(ObjectDiffTest, ShowsAPartOfALongValue) {
  const std::string before(30, '0');
  const std::string after(89, '0');
  EXPECT_EQ(
      Print(Object(LongText(5000, 2000, '1')), Object(LongText(5000, 2000, '2'))).text,
      fmt::format("differs     o  (object): …{}1{}… and …{}2{}…\n", before, after, before, after));
  EXPECT_EQ(Print(Object(LongText(5000, 4999, '1')), Object(LongText(5000, 4999, '2'))).text,
            fmt::format("differs     o  (object): …{}1\" and …{}2\"\n", before, before));
  EXPECT_EQ(Print(Object(LongText(5000, 0, '1')), Object("null")).text,
            fmt::format("differs     o  (object): \"1{}… and null\n", std::string(118, '0')));
  std::string umlauts = "\"";
  for (int i = 0; i < 100; ++i) umlauts += "ü";
  const std::string text = Print(Object(umlauts + "x\""), Object(umlauts + "y\"")).text;
  EXPECT_THAT(text, ::testing::Not(HasSubstr("\\x")));
  EXPECT_THAT(text, HasSubstr("üx\" and …ü"));
}

// Names and values come from files: no terminal obeys them.
TEST(ObjectDiffTest, EscapesWhatItShows) {
  const std::string long_text(200, '0');
  const std::string a = R"({"k\u001b":")" + long_text + "\",\"x\":\"\x7f\"}";
  const std::string b = R"({"k\u001b":")" + long_text + "1\",\"x\":\"\x7f\"}";
  const std::string text = Print(Object(a), Object(b)).text;
  EXPECT_THAT(text, HasSubstr("at /k\\x1b: "));
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

TEST(ObjectDiffTest, SaysItInJsonToo) {
  const Printed printed =
      Print(Object(R"({"p":{"x":1,"y":[2]}})"), Object(R"({"p":{"y":[],"x":2}})"));
  const auto document = JsonDocument::Parse(printed.json, "diff");
  ASSERT_THAT(document, IsOk());
  const auto objects = document->root().At("objects")->At("different")->Items();
  ASSERT_EQ(objects->size(), 1U);
  const JsonCursor& object = objects->front();
  EXPECT_EQ(object.At("key")->Text().value(), "o");
  EXPECT_EQ(object.At("what")->Text().value(), "values");
  EXPECT_EQ(object.At("first")->Text().value(), "/p/x");
  EXPECT_EQ(object.At("first_a")->Int64().value(), 1);
  EXPECT_EQ(object.At("first_b")->Int64().value(), 2);
  EXPECT_EQ(object.At("places")->Int64().value(), 2);
  EXPECT_TRUE(object.At("a")->Find("p"));

  const Printed order = Print(Object(R"({"x":1,"y":2})"), Object(R"({"y":2,"x":1})"));
  EXPECT_THAT(order.json, HasSubstr("\"what\": \"key_order\",\n        \"first\": \"\"\n"));
  const Printed lacking = Print(Object(R"({"x":1})"), Object("{}"));
  EXPECT_THAT(lacking.json, HasSubstr("\"first_a\": 1\n"));
}

}  // namespace
}  // namespace ckpt::inspect

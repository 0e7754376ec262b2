#include "formats/pickle/object_json.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/endian.h"
#include "formats/pickle/reader.h"
#include "formats/pickle/writer.h"
#include "tests/testing/matchers.h"

namespace ckpt::pickle {
namespace {

using ::ckpt::testing::FailsWith;
using ::ckpt::testing::IsOk;
using ::ckpt::testing::IsOkAndHolds;
using namespace std::string_literals;

Result<std::string> Render(ByteSpan bytes) {
  CKPT_ASSIGN_OR_RETURN(const ParsedPickle parsed, ParsePickle(bytes, "o"));
  return RenderJson(parsed.graph, parsed.root);
}

Result<std::string> Render(std::string_view text) { return Render(AsBytes(text)); }

TEST(ObjectJsonTest, KeepsTheTypeOfPlainValues) {
  PickleWriter writer(Dialect::kWeightsOnly);
  writer.BeginList().None().Bool(true).Int(-70000).Int(1LL << 53).Int((1LL << 53) + 1);
  writer.Float(1).Float(std::numeric_limits<double>::infinity()).Text("\xC3\xA9").EmptyTuple();
  writer.BytesValue(AsBytes("\xFF\x00"s)).BigInt("\0\0\0\0\0\0\0\0\1"s).EndList();
  EXPECT_THAT(Render(writer.Take()),
              IsOkAndHolds(R"([null,true,-70000,9007199254740992,{"$int":"9007199254740993"},1.0,)"
                           R"({"$float":"inf"},"é",{"$tuple":[]},{"$bytes":"ff00"},)"
                           R"({"$int":"18446744073709551616"}])"));
}

TEST(ObjectJsonTest, DictsWithOtherKeysAreLists) {
  PickleWriter writer(Dialect::kProtocol4);
  writer.BeginList().BeginDict().Text("a").Int(1).EndDict();
  writer.BeginDict().Int(1).Int(2).EndDict();
  writer.BeginDict().Text("$a").Int(2).EndDict().EndList();
  EXPECT_THAT(Render(writer.Take()),
              IsOkAndHolds(R"([{"a":1},{"$dict":[[1,2]]},{"$dict":[["$a",2]]}])"));
}

TEST(ObjectJsonTest, UnderstandsCallsOfKnownClasses) {
  PickleWriter writer(Dialect::kWeightsOnly);
  writer.BeginList();
  writer.Global("argparse", "Namespace").EmptyTuple().NewObject();
  writer.BeginDict().Text("lr").Float(0.5).EndDict().Build();
  writer.Global("torch", "Size").BeginTuple().Int(2).Int(3).EndTuple().InTuple().Reduce();
  writer.Global("torch", "bfloat16");
  writer.Global("torch", "device").BeginTuple().Text("cuda").Int(1).EndTuple().Reduce();
  writer.Global("collections", "OrderedDict").EmptyTuple().Reduce();
  writer.Global("builtins", "set").BeginList().Int(2).Int(10).EndList().InTuple().Reduce();
  writer.Global("pathlib", "PosixPath").BeginTuple().Text("/").Text("tmp/x").EndTuple().Reduce();
  writer.EndList();
  EXPECT_THAT(Render(writer.Take()),
              IsOkAndHolds(R"([{"$object":{"class":"argparse.Namespace","state":{"lr":0.5}}},)"
                           R"({"$size":[2,3]},{"$dtype":"bfloat16"},{"$device":"cuda:1"},)"
                           R"({"$ordered_dict":[]},{"$set":[10,2]},)"
                           R"({"$object":{"class":"pathlib.PosixPath",)"
                           R"("state":{"parts":["/","tmp","x"]}}}])"));
}

TEST(ObjectJsonTest, NamesWhatItDoesNotKnowAndWarnsOfCalls) {
  PickleWriter writer(Dialect::kProtocol4);
  writer.Global("posix", "system").Text("ls").InTuple().Reduce();
  const auto parsed = ParsePickle(writer.Take(), "o");
  ASSERT_THAT(parsed, IsOk());
  const auto object = RenderObject(parsed->graph, parsed->root, "file", "key");
  ASSERT_THAT(object, IsOk());
  EXPECT_EQ(object->json, R"({"$opaque":"posix.system"})");
  ASSERT_EQ(object->warnings.size(), 1U);
  EXPECT_EQ(object->warnings[0].kind, ErrorKind::kUnsafePickle);
  EXPECT_EQ(object->warnings[0].severity, Severity::kWarning);
  EXPECT_EQ(object->warnings[0].actual, "posix.system");
  EXPECT_EQ(object->warnings[0].tensor, "key");
}

TEST(ObjectJsonTest, NamesClassesInsideClasses) {
  EXPECT_THAT(Render("cbuiltins\ngetattr\n(cmine\nOuter\nVInner\ntR)\x81."),
              IsOkAndHolds(R"({"$opaque":"mine.Outer.Inner"})"));
  EXPECT_THAT(Render("cmine\nmake\n)R)\x81."), IsOkAndHolds(R"({"$opaque":"instance"})"));
}

TEST(ObjectJsonTest, KeepsLoneSurrogates) {
  EXPECT_THAT(Render("\x80\x02X\x04\x00\x00\x00"
                     "a\xED\xA0\x80."s),
              IsOkAndHolds(R"("a\ud800")"));
  // Beside characters of every length.
  EXPECT_THAT(Render("Va\\ud800\xE9\\u20ac\\U0001f600\n."), IsOkAndHolds("\"a\\ud800é€😀\""));
}

TEST(ObjectJsonTest, RefusesWhatOnlyLooksSmall) {
  // A list of ten references to a list of ten references to …
  std::string bomb = "\x80\x02]q\x00"s;
  for (char level = 0; level < 40; ++level) {
    bomb += "](";
    for (int i = 0; i < 10; ++i) bomb += "h"s + level;
    bomb += "eq"s + static_cast<char>(level + 1);
  }
  // Every level's list lies on the stack; the last one is the value of a dict around the others.
  const std::string all = "\x80\x02(" + bomb.substr(2) + "t.";
  EXPECT_THAT(Render(all), FailsWith(ErrorKind::kResource));
  EXPECT_THAT(Render("\x80\x02]q\x00h\x00"
                     "a."s),
              FailsWith(ErrorKind::kResource))
      << "a list that contains itself";
  EXPECT_THAT(Render("\x80\x02)" + std::string(50000, '\x85') + "."),
              FailsWith(ErrorKind::kResource));
}

TEST(ObjectJsonTest, KeepsToItsLimitWhereverThatFalls) {
  // Everything that writes in several steps, in one list.
  const auto parsed = ParsePickle(AsBytes("\x80\x04](K\x01)}(Va\nNVb\nNu}(K\x01NK\x02Nu"
                                          "\x8F(Va\nVb\n\x90"
                                          "C\x02zz"
                                          "cargparse\nNamespace\n)\x81}Va\nNsb"
                                          "cargparse\nNamespace\n)\x81"
                                          "csignal\nSignals\n(K\x0FtRe."),
                                  "o");
  ASSERT_THAT(parsed, IsOk());
  const auto whole = RenderJson(parsed->graph, parsed->root);
  ASSERT_THAT(whole, IsOk());
  for (std::uint64_t limit = 0; limit < whole->size(); ++limit) {
    ASSERT_THAT(RenderJson(parsed->graph, parsed->root, {.max_bytes = limit}),
                FailsWith(ErrorKind::kResource))
        << limit;
  }
  EXPECT_THAT(RenderJson(parsed->graph, parsed->root, {.max_bytes = whole->size()}),
              IsOkAndHolds(*whole));
}

TEST(ObjectJsonTest, KeepsToItsLimitInSmallValuesToo) {
  // What follows a beginning that does not fit may fit: it must not be the whole answer.
  for (const char* pickle :
       {")", "]", "}", "\x80\4\x8F", "(K\1K\2t", "}K\1K\2s", "}(Va\nK\1Vb\nK\2u",
        "ccollections\nOrderedDict\n)R", "cargparse\nNamespace\n)\x81",
        "cargparse\nNamespace\n)\x81}b", "csignal\nSignals\n(K\1tR"}) {
    const auto parsed = ParsePickle(AsBytes(std::string(pickle) + "."), "o");
    ASSERT_THAT(parsed, IsOk());
    const auto whole = RenderJson(parsed->graph, parsed->root);
    ASSERT_THAT(whole, IsOk());
    for (std::uint64_t limit = 0; limit < whole->size(); ++limit) {
      EXPECT_THAT(RenderJson(parsed->graph, parsed->root, {.max_bytes = limit}),
                  FailsWith(ErrorKind::kResource))
          << *whole << " within " << limit;
    }
  }
}

TEST(ObjectJsonTest, BoundsIntegersAndDepth) {
  const auto integer = [](unsigned length) {
    std::string pickle = "\x80\x02\x8B" + std::string(4, '\0') + std::string(length, '\1') + ".";
    StoreLe<std::uint32_t>(length, reinterpret_cast<std::byte*>(&pickle[3]));
    return pickle;
  };
  EXPECT_THAT(Render(integer(4096)), IsOk());
  EXPECT_THAT(Render(integer(4097)), FailsWith(ErrorKind::kResource));
  const auto nested = [](int depth) {
    return Render("\x80\x02)" + std::string(static_cast<std::size_t>(depth), '\x85') + ".");
  };
  EXPECT_THAT(nested(200), IsOk());
  EXPECT_THAT(nested(201), FailsWith(ErrorKind::kResource));
  // Before anything is written.
  for (const char* large : {"\x80\4\x43\2zz.", "\x80\4\x8F(Vzz\n\x90."}) {
    const auto parsed = ParsePickle(AsBytes(large), "o");
    ASSERT_THAT(parsed, IsOk());
    EXPECT_THAT(RenderJson(parsed->graph, parsed->root, {.max_bytes = 3}),
                FailsWith(ErrorKind::kResource));
  }
}

}  // namespace
}  // namespace ckpt::pickle

#include "formats/torch_save/pickle_reader.h"

#include <limits>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/matchers.h"

namespace ckpt::pickle {
namespace {

using ::ckpt::testing::FailsWith;
using ::ckpt::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace std::string_literals;

Result<ParsedPickle> Parse(std::string_view text) { return ParsePickle(AsBytes(text), "a.pkl"); }

std::string MessageOf(const Result<ParsedPickle>& parsed) {
  return parsed.ok() ? "OK" : parsed.status().ToString();
}

TEST(PickleReaderTest, ReadsIntegersOfEveryWidth) {
  struct Case {
    std::string bytes;
    std::int64_t want;
  };
  const std::vector<Case> cases = {
      {"K\xFF.", 255},
      {"M\x00\x01."s, 256},
      {"J\xFE\xFF\xFF\xFF.", -2},
      {"\x8A\x00."s, 0},
      {"\x8A\x05\x00\x00\x00\x80\x00."s, 2147483648},
      {"\x8A\x08\x00\x00\x00\x00\x00\x00\x00\x80."s, std::numeric_limits<std::int64_t>::min()},
      {"\x8B\x01\x00\x00\x00\xFF."s, -1},
      {"I-12\n.", -12},
      {"L9223372036854775807L\n.", std::numeric_limits<std::int64_t>::max()},
  };
  for (const Case& c : cases) {
    const auto parsed = Parse(c.bytes);
    ASSERT_THAT(parsed, IsOk());
    ASSERT_EQ(parsed->graph.kind(parsed->root), NodeKind::kInt);
    EXPECT_EQ(parsed->graph.integer(parsed->root), c.want);
  }
}

TEST(PickleReaderTest, KeepsIntegersPast64BitsWhole) {
  const auto parsed = Parse("\x8A\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01."s);
  ASSERT_THAT(parsed, IsOk());
  ASSERT_EQ(parsed->graph.kind(parsed->root), NodeKind::kBigInt);
  EXPECT_EQ(parsed->graph.text(parsed->root), "\0\0\0\0\0\0\0\0\1"s);
}

TEST(PickleReaderTest, ReadsTextOpcodesOfProtocolZero) {
  const auto parsed = Parse("(lp0\nI01\naF1.5\naS'a\\n\\x41'\naVb\\u00e9\nag0\na.");
  ASSERT_THAT(parsed, IsOk());
  const Graph& graph = parsed->graph;
  const auto items = graph.items(parsed->root);
  ASSERT_EQ(items.size(), 5U);
  EXPECT_TRUE(graph.boolean(items[0]));
  EXPECT_EQ(graph.number(items[1]), 1.5);
  EXPECT_EQ(graph.text(items[2]), "a\nA");
  EXPECT_EQ(graph.text(items[3]), "b\xC3\xA9");
  EXPECT_EQ(items[4], parsed->root) << "a list may contain itself";
}

TEST(PickleReaderTest, NamesCallsInsteadOfMakingThem) {
  const auto parsed = Parse(
      "\x80\x02"
      "cposix\nsystem\nX\x02\x00\x00\x00ls\x85R."s);
  ASSERT_THAT(parsed, IsOk());
  const Graph& graph = parsed->graph;
  ASSERT_EQ(graph.kind(parsed->root), NodeKind::kCall);
  EXPECT_EQ(graph.QualifiedName(parsed->root), "posix.system");
  EXPECT_EQ(graph.text(graph.items(graph.args(parsed->root))[0]), "ls");
  EXPECT_THAT(graph.CalledGlobals(), ElementsAre(GlobalName{"posix", "system"}));
}

TEST(PickleReaderTest, RemembersCallsWhoseResultWasDropped) {
  const auto parsed = Parse(
      "\x80\x02"
      "cposix\nsystem\n)R0N."s);
  ASSERT_THAT(parsed, IsOk());
  EXPECT_THAT(parsed->graph.CalledGlobals(), ElementsAre(GlobalName{"posix", "system"}));
}

TEST(PickleReaderTest, KeepsStateItemsAndEntriesOfObjects) {
  const auto parsed = Parse(
      "\x80\x02"
      "ccollections\nOrderedDict\n)RK\x01K\x02s}b."s);
  ASSERT_THAT(parsed, IsOk());
  const Graph& graph = parsed->graph;
  EXPECT_EQ(graph.items(graph.entries(parsed->root)).size(), 2U);
  EXPECT_EQ(graph.kind(graph.state(parsed->root)), NodeKind::kDict);
  EXPECT_EQ(graph.appended(parsed->root), kNoNode);
}

TEST(PickleReaderTest, GivesOldModulesTheirPresentNames) {
  const auto parsed = Parse(
      "\x80\x02"
      "c__builtin__\nunicode\n."s);
  ASSERT_THAT(parsed, IsOk());
  EXPECT_TRUE(parsed->graph.IsGlobal(parsed->root, "builtins", "str"));
}

TEST(PickleReaderTest, ReadsSeveralPicklesInARow) {
  const std::string bytes = "K\x01.K\x02."s;
  const auto first = Parse(bytes);
  ASSERT_THAT(first, IsOk());
  EXPECT_EQ(first->end, 3U);
  const auto second = ParsePickle(AsBytes(bytes), "a.pkl", {.start = first->end});
  ASSERT_THAT(second, IsOk());
  EXPECT_EQ(second->graph.integer(second->root), 2);
  EXPECT_THAT(ParsePickle(AsBytes(bytes), "a.pkl", {.start = second->end}),
              FailsWith(ErrorKind::kBadMetadata));
}

TEST(PickleReaderTest, NestingOfAnyDepthNeedsNoStack) {
  const std::string deep = "\x80\x02)" + std::string(3'000'000, '\x85') + ".";
  EXPECT_THAT(Parse(deep), IsOk());
}

TEST(PickleReaderTest, ContainersGrowWhileOthersAreMade) {
  // Two lists that take turns.
  std::string bytes = "\x80\x04]\x94]\x94";
  for (int i = 0; i < 200; ++i) {
    for (const char* list : {"h\x00", "h\x01"}) {
      bytes += std::string(list, 2) + "K" + static_cast<char>(i) + "a0";
    }
  }
  const auto parsed = Parse(bytes + "\x86.");
  ASSERT_THAT(parsed, IsOk());
  for (const NodeId list : parsed->graph.items(parsed->root)) {
    const auto items = parsed->graph.items(list);
    ASSERT_EQ(items.size(), 200U);
    for (std::size_t i = 0; i < 200; ++i) {
      EXPECT_EQ(parsed->graph.integer(items[i]), static_cast<std::int64_t>(i));
    }
  }
}

struct BadCase {
  const char* name;
  std::string bytes;
  ErrorKind kind;
  const char* says;
};
void PrintTo(const BadCase& c, std::ostream* os) { *os << c.name; }

class BadPickleTest : public ::testing::TestWithParam<BadCase> {};

TEST_P(BadPickleTest, IsRefusedWithItsByte) {
  const auto parsed = Parse(GetParam().bytes);
  EXPECT_THAT(parsed, FailsWith(GetParam().kind));
  EXPECT_THAT(MessageOf(parsed), HasSubstr(GetParam().says));
  EXPECT_THAT(MessageOf(parsed), HasSubstr("a.pkl"));
}

INSTANTIATE_TEST_SUITE_P(
    Cases, BadPickleTest,
    ::testing::Values(
        BadCase{"Empty", "", ErrorKind::kBadMetadata, "empty file"},
        BadCase{"Text", "hello there\n", ErrorKind::kBadMetadata, "not a pickle"},
        BadCase{"UnknownOpcode", "\x80\x02N\xFF."s, ErrorKind::kBadMetadata,
                "unknown pickle opcode 0xff at byte 3"},
        BadCase{"MemoNotSet", "\x80\x02h\x07."s, ErrorKind::kBadMetadata,
                "memo slot 7 not set at byte 2"},
        BadCase{"MemoReadBeforeItIsSet", "\x80\x02h\x01Nq\x01."s, ErrorKind::kBadMetadata,
                "memo slot 1 not set"},
        BadCase{"Underflow", "\x80\x02\x86."s, ErrorKind::kBadMetadata, "stack underflow"},
        BadCase{"PopsBelowAMark", "\x80\x02N(\x85."s, ErrorKind::kBadMetadata, "stack underflow"},
        BadCase{"NoMark", "\x80\x02Nt."s, ErrorKind::kBadMetadata, "no mark"},
        BadCase{"NoStop", "\x80\x02N"s, ErrorKind::kBadMetadata,
                "ends early, without a STOP at byte 3"},
        BadCase{"CutArgument", "\x80\x02M\x01"s, ErrorKind::kBadMetadata,
                "ends early, in the opcode at byte 2"},
        BadCase{"CutText",
                "\x80\x02X\x03\x00\x00\x00"
                "ab"s,
                ErrorKind::kBadMetadata, "ends early"},
        BadCase{"HugeLength",
                "\x80\x04\x8D\x00\x00\x00\x00\x00\x00\x00\x10"
                "ab"s,
                ErrorKind::kResource, "1152921504606846976 bytes is announced"},
        BadCase{"Inst", "(S'ls'\niposix\nsystem\n."s, ErrorKind::kUnsafePickle, "posix.system"},
        BadCase{"Obj", "\x80\x02(cposix\nsystem\no."s, ErrorKind::kUnsafePickle, "OBJ"},
        BadCase{"Ext", "\x80\x02\x82\x01."s, ErrorKind::kUnsupported, "EXT"},
        BadCase{"PersId", "\x80\x02P1\n."s, ErrorKind::kUnsupported, "PERSID"},
        BadCase{"Buffer", "\x80\x05\x97."s, ErrorKind::kUnsupported, "out-of-band"},
        BadCase{"NewerProtocol", "\x80\x06N."s, ErrorKind::kUnsupported, "protocol 6"},
        BadCase{"BadUtf8", "\x80\x02X\x01\x00\x00\x00\xFF."s, ErrorKind::kBadMetadata, "UTF-8"},
        BadCase{"AppendToDict", "\x80\x02}Na."s, ErrorKind::kBadMetadata, "appended to a dict"},
        BadCase{"OddDict", "\x80\x02}(Nu."s, ErrorKind::kBadMetadata, "key without its value"},
        BadCase{"StateOfAnInt", "\x80\x02K\x01}b."s, ErrorKind::kBadMetadata, "a state for a int"},
        BadCase{"CallWithoutTuple",
                "\x80\x02"
                "ca\nb\nNR."s,
                ErrorKind::kBadMetadata, "no tuple"},
        BadCase{"TwoValues", "\x80\x02NN."s, ErrorKind::kBadMetadata, "several values"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(PickleReaderTest, AnswersEveryCutOfAPickleWithAnError) {
  const std::string whole =
      "\x80\x04\x95\x20\x00\x00\x00\x00\x00\x00\x00}\x94(\x8C\x01"
      "a\x94K\x01\x8C\x01"
      "b\x94"
      "G?\xF8\x00\x00\x00\x00\x00\x00\x8C\x01m\x8C\x01n\x93)\x81}bu."s;
  // The last text is a key without value.
  const std::string good = whole.substr(0, whole.size() - 2) + "Nu.";
  ASSERT_THAT(Parse(good), IsOk());
  for (std::size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(Parse(std::string_view(good).substr(0, length)).ok()) << length;
  }
}

TEST(PickleReaderTest, StopsAtTheNodeLimit) {
  EXPECT_THAT(
      ParsePickle(AsBytes("\x80\x02" + std::string(1000, ']') + "."), "a.pkl", {.max_nodes = 500}),
      FailsWith(ErrorKind::kResource));
}

// Turns every `m.Point` into a record of its argument count or state size.
class PointReducer final : public Reducer {
 public:
  std::optional<Record> OnCall(const Graph& graph, NodeId callable, NodeId args) override {
    if (!graph.IsGlobal(callable, "m", "Point")) return std::nullopt;
    return Record{1, static_cast<std::uint64_t>(graph.integer(graph.items(args)[0]))};
  }
  std::optional<Record> OnBuilt(const Graph& graph, NodeId instance, NodeId state) override {
    if (!graph.IsGlobal(graph.callable(instance), "m", "Point")) return std::nullopt;
    return Record{2, graph.items(state).size()};
  }
};

TEST(PickleReducerTest, ReducedObjectsCostOneNodeEach) {
  std::string bytes =
      "\x80\x04\x8C\x01m\x94\x8C\x05Point\x94\x93\x94"
      "0]\x94(";
  for (int i = 0; i < 1000; ++i)
    bytes += "h\x02)\x81\x94}\x94(\x8C\x01xM\x01\x01\x8C\x01yGABCDEFGHub";
  bytes += "e.";
  PointReducer reducer;
  const auto parsed = ParsePickle(AsBytes(bytes), "a.pkl", {.reducer = &reducer});
  ASSERT_THAT(parsed, IsOk());
  const auto items = parsed->graph.items(parsed->root);
  ASSERT_EQ(items.size(), 1000U);
  EXPECT_LT(parsed->graph.size(), 1300U);
  for (const NodeId item : items) {
    ASSERT_EQ(parsed->graph.kind(item), NodeKind::kRecord);
    EXPECT_EQ(parsed->graph.record(item).value, 4U);
  }
}

TEST(PickleReducerTest, KeepsWhatTheMemoStillNeeds) {
  // ({'x': ['kept']} reduced, then the inner list from the memo.
  const std::string bytes =
      "\x80\x04\x8C\x01m\x8C\x05Point\x93)\x81}\x8C\x01x]\x94\x8C\x04kept"
      "asbh\x00\x86."s;
  PointReducer reducer;
  const auto parsed = ParsePickle(AsBytes(bytes), "a.pkl", {.reducer = &reducer});
  ASSERT_THAT(parsed, IsOk());
  const Graph& graph = parsed->graph;
  const NodeId list = graph.items(parsed->root)[1];
  ASSERT_EQ(graph.kind(list), NodeKind::kList);
  EXPECT_EQ(graph.text(graph.items(list)[0]), "kept");
}

TEST(PickleReducerTest, KeepsWhatAnOlderContainerTookMeanwhile) {
  // While the point is open, a list made before it gets a fresh inner list.
  const std::string bytes =
      "\x80\x04]\x94\x8C\x01m\x8C\x05Point\x93)\x81h\x00]\x8C\x06inside"
      "aa0}b0."s;
  PointReducer reducer;
  const auto parsed = ParsePickle(AsBytes(bytes), "a.pkl", {.reducer = &reducer});
  ASSERT_THAT(parsed, IsOk());
  const Graph& graph = parsed->graph;
  const NodeId inner = graph.items(parsed->root)[0];
  ASSERT_LT(inner, graph.size());
  EXPECT_EQ(graph.text(graph.items(inner)[0]), "inside");
}

TEST(PickleReaderTest, RefusesAMemoizeWhoseSlotReadersDisagreeAbout) {
  // Slot 5 is set, slots 0 to 4 are not: Python's MEMOIZE takes slot 1.
  const auto parsed = Parse(
      "\x80\x04K\x01q\x05"
      "0K\x02\x94"
      "0h\x06."s);
  EXPECT_THAT(parsed, FailsWith(ErrorKind::kBadMetadata));
  EXPECT_THAT(MessageOf(parsed), HasSubstr("MEMOIZE behind a gap"));
  // Without a gap both count the same.
  EXPECT_THAT(Parse("\x80\x04K\x01q\x00"
                    "0K\x02\x94"
                    "0h\x01."s),
              IsOk());
}

TEST(PickleReaderTest, RefusesAFrameThatIsLongerThanTheRest) {
  EXPECT_THAT(Parse("\x80\x04\x95\x02\x00\x00\x00\x00\x00\x00\x00N."s), IsOk());
  EXPECT_THAT(Parse("\x80\x04\x95\x03\x00\x00\x00\x00\x00\x00\x00N."s),
              FailsWith(ErrorKind::kBadMetadata));
}

TEST(PickleReducerTest, CallsBecomeRecordsToo) {
  const std::string bytes = "\x80\x02(cm\nPoint\nM\x10\x01\x85RNt."s;
  PointReducer reducer;
  const auto parsed = ParsePickle(AsBytes(bytes), "a.pkl", {.reducer = &reducer});
  ASSERT_THAT(parsed, IsOk());
  const NodeId point = parsed->graph.items(parsed->root)[0];
  ASSERT_EQ(parsed->graph.kind(point), NodeKind::kRecord);
  EXPECT_EQ(parsed->graph.record(point).value, 272U);
  EXPECT_THAT(parsed->graph.CalledGlobals(), ElementsAre(GlobalName{"m", "Point"}));
}

}  // namespace
}  // namespace ckpt::pickle

#include "formats/pickle/reader.h"

#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "formats/pickle/internal/builder.h"
#include "tests/testing/matchers.h"

namespace ckpt::pickle {
namespace {

using ::ckpt::testing::FailsWith;
using ::ckpt::testing::IsOk;
using ::testing::ElementsAre;
using namespace std::string_literals;

Result<ParsedPickle> Parse(std::string_view text) { return ParsePickle(AsBytes(text), "a.pkl"); }

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
      {"\x8A\x09\1\0\0\0\0\0\0\0\0."s, 1},
      {"\x8A\x02\xFE\xFF."s, -2},
      {"\x8A\x02\xFF\0."s, 255},
      {"\x8A\x02\x7F\xFF."s, -129},
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

// torch's legacy form names the class of a module by a persistent id, the first time.
TEST(PickleReaderTest, TakesTheIdOfAModulesClassForTheClass) {
  const std::string linear = "cmine\nLinear\n";
  const std::string inner = "c__builtin__\ngetattr\n(cmine\nOuter\nVInner\ntR";
  for (const std::string& cls : {linear, inner}) {
    const std::string object = "(Vmodule\n" + cls + "p1\nVmine.py\nVclass\ntQ)\x81}Vx\nI1\nsb";
    // Later instances have the class itself.
    const std::string pickle = "(" + object + "g1\n)\x81t.";
    const auto parsed = ParsePickle(AsBytes(pickle), "a.pkl", {.has_module_ids = true});
    ASSERT_THAT(parsed, IsOk());
    const Graph& graph = parsed->graph;
    const auto items = graph.items(parsed->root);
    ASSERT_EQ(items.size(), 2U);
    for (const NodeId item : items) {
      ASSERT_EQ(graph.kind(item), NodeKind::kInstance);
      EXPECT_EQ(graph.QualifiedName(item), cls == linear ? "mine.Linear" : "mine.Outer.Inner");
    }
    EXPECT_NE(graph.Find(graph.state(items[0]), "x"), kNoNode);
    EXPECT_THAT(Parse(pickle), FailsWith(ErrorKind::kBadMetadata)) << "others have no such ids";
  }
}

TEST(PickleReaderTest, LeavesOtherPersistentIdsWhereModulesHaveSome) {
  const std::string of_class = "cmine\nLinear\n";
  for (const std::string& id :
       {"(Vstorage\n" + of_class + "t"s, "(Vmodule\nt"s, "(Vmodule\nVmine.Linear\nt"s,
        "(Vmodule\n](" + of_class + "et"s, "(" + of_class + "Vmodule\nt"s,
        "](Vmodule\n" + of_class + "e"s, ")"s, "Vmodule\n"s}) {
    const auto parsed = ParsePickle(AsBytes(id + "Q."), "a.pkl", {.has_module_ids = true});
    ASSERT_THAT(parsed, IsOk()) << id;
    EXPECT_EQ(parsed->graph.kind(parsed->root), NodeKind::kPersistent) << id;
  }
}

TEST(PickleReaderTest, RemembersCallsWhoseResultWasDropped) {
  const auto parsed = Parse(
      "\x80\x02"
      "cposix\nsystem\n)R0N."s);
  ASSERT_THAT(parsed, IsOk());
  EXPECT_THAT(parsed->graph.CalledGlobals(), ElementsAre(GlobalName{"posix", "system"}));
}

// Protocols below 4 call getattr for a class inside a class.
TEST(PickleReaderTest, ReadsInstancesOfAClassInsideAClass) {
  const std::string inner = "c__builtin__\ngetattr\n(cmine\nOuter\nVInner\ntR";
  const auto parsed = Parse(inner + ")\x81}Vx\nI1\nsb.");
  ASSERT_THAT(parsed, IsOk());
  const Graph& graph = parsed->graph;
  ASSERT_EQ(graph.kind(parsed->root), NodeKind::kInstance);
  EXPECT_EQ(graph.QualifiedName(parsed->root), "mine.Outer.Inner");
  EXPECT_NE(graph.Find(graph.state(parsed->root), "x"), kNoNode);
  EXPECT_THAT(graph.CalledGlobals(), ElementsAre(GlobalName{"builtins", "getattr"}));

  // In a class inside that one; and a member of an enum.
  const std::string deeper = "c__builtin__\ngetattr\n(" + inner + "VDeep\ntR";
  for (const std::string& pickle : {deeper + ")\x81.", deeper + "(I1\ntR."}) {
    const auto deep = Parse(pickle);
    ASSERT_THAT(deep, IsOk());
    EXPECT_EQ(deep->graph.QualifiedName(deep->root), "mine.Outer.Inner.Deep");
  }

  // What another call returns has no name.
  const auto unknown = Parse("cmine\nmake\n)R)\x81.");
  ASSERT_THAT(unknown, IsOk());
  EXPECT_EQ(unknown->graph.QualifiedName(unknown->root), "");
}

TEST(PickleReaderTest, DoesNotCountTheNamesOfFrameworksAsCalls) {
  const auto called = [](std::string_view arguments) {
    const auto parsed = Parse("cbuiltins\ngetattr\n(" + std::string(arguments) + "tR.");
    return parsed.ok() && !parsed->graph.CalledGlobals().empty();
  };
  EXPECT_FALSE(called("ctorch.distributed\nTensor\nVState\n"));
  EXPECT_TRUE(called("ctorch.distributed\nTensor\nVstate\n"));
  EXPECT_TRUE(called("ctorch._utils\n_rebuild_tensor\nV__globals__\n"));
  EXPECT_TRUE(called("cmine\nOuter\nVInner\n"));
  EXPECT_TRUE(called("ctorch.distributed\nTensor\nVState\nN"));
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
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"__builtin__\nunicode", "builtins.str"},
      {"__builtin__\nlong", "builtins.int"},
      {"__builtin__\nxrange", "builtins.range"},
      {"__builtin__\nunichr", "builtins.chr"},
      {"__builtin__\nset", "builtins.set"},
      {"m\nlong", "m.long"},
      {"copy_reg\n_reconstructor", "copyreg._reconstructor"},
  };
  for (const auto& [written, present] : cases) {
    const auto parsed = Parse("c" + written + "\n.");
    ASSERT_THAT(parsed, IsOk());
    EXPECT_EQ(parsed->graph.QualifiedName(parsed->root), present);
  }
}

TEST(PickleReaderTest, ReadsTextAndBytesOfEveryLength) {
  struct Case {
    std::string bytes;
    NodeKind kind;
  };
  const std::vector<Case> cases = {
      {"U\1a.", NodeKind::kText},
      {"T\1\0\0\0a."s, NodeKind::kText},
      {"X\1\0\0\0a."s, NodeKind::kText},
      {"\x8C\1a.", NodeKind::kText},
      {"\x8D\1\0\0\0\0\0\0\0a."s, NodeKind::kText},
      {"C\1a.", NodeKind::kBytes},
      {"B\1\0\0\0a."s, NodeKind::kBytes},
      {"\x8E\1\0\0\0\0\0\0\0a."s, NodeKind::kBytes},
      {"\x96\1\0\0\0\0\0\0\0a."s, NodeKind::kByteArray},
  };
  for (const Case& c : cases) {
    const auto parsed = Parse(c.bytes);
    ASSERT_THAT(parsed, IsOk());
    EXPECT_EQ(parsed->graph.kind(parsed->root), c.kind);
    EXPECT_EQ(parsed->graph.text(parsed->root), "a");
  }
  // Text of Python 2 may be either.
  for (const std::string& bytes : {"U\1\xFF."s, "T\1\0\0\0\xFF."s}) {
    const auto parsed = Parse(bytes);
    ASSERT_THAT(parsed, IsOk());
    EXPECT_EQ(parsed->graph.kind(parsed->root), NodeKind::kBytes);
  }
}

TEST(PickleReaderTest, ReadsTheMemoOfEveryWidth) {
  for (const std::string& bytes : {"M\1\1q\x05"
                                   "0h\5."s,
                                   "M\1\1r\5\0\0\0"
                                   "0j\5\0\0\0."s,
                                   "M\1\1p5\n0g5\n."s,
                                   "M\1\1\x94"
                                   "0h\0."s}) {
    const auto parsed = Parse(bytes);
    ASSERT_THAT(parsed, IsOk());
    EXPECT_EQ(parsed->graph.integer(parsed->root), 257);
  }
}

TEST(PickleReaderTest, ReadsTruthOfEveryProtocol) {
  const auto truth = [](std::string_view bytes) {
    const auto parsed = Parse(bytes);
    EXPECT_THAT(parsed, IsOk());
    EXPECT_EQ(parsed->graph.kind(parsed->root), NodeKind::kBool);
    return parsed->graph.boolean(parsed->root);
  };
  EXPECT_TRUE(truth("\x88."));
  EXPECT_FALSE(truth("\x89."));
  EXPECT_TRUE(truth("I01\n."));
  EXPECT_FALSE(truth("I00\n."));
}

TEST(PickleReaderTest, CollectsWhatIsAddedToAnObjectBitByBit) {
  for (const char* object : {"cm\nf\n)R", "cm\nf\n)\x81"}) {
    const auto parsed = Parse(object + "K\1a(K\2K\3e(K\4\x90N]s(K\5}u."s);
    ASSERT_THAT(parsed, IsOk());
    const Graph& graph = parsed->graph;
    EXPECT_THAT(
        graph.items(graph.appended(parsed->root)),
        ElementsAre(kFirstIntNode + 1, kFirstIntNode + 2, kFirstIntNode + 3, kFirstIntNode + 4));
    const auto entries = graph.items(graph.entries(parsed->root));
    ASSERT_EQ(entries.size(), 4U);
    EXPECT_EQ(graph.kind(entries[1]), NodeKind::kList);
    EXPECT_EQ(graph.kind(entries[3]), NodeKind::kDict);
  }
}

TEST(PickleReaderTest, KeepsKeywordsThatAreThere) {
  const auto kwargs = [](std::string_view bytes) {
    const auto parsed = Parse(bytes);
    EXPECT_THAT(parsed, IsOk());
    EXPECT_EQ(parsed->graph.kind(parsed->root), NodeKind::kInstance);
    const NodeId node = parsed->graph.kwargs(parsed->root);
    return node == kNoNode ? 0 : parsed->graph.items(node).size();
  };
  EXPECT_EQ(kwargs("cm\nf\n)}\x92."), 0U);
  EXPECT_EQ(kwargs("cm\nf\n)}Va\nNs\x92."), 2U);
}

TEST(PickleReaderTest, SaysHowFarItIs) {
  std::string bytes = "N";
  while (bytes.size() < (9 << 20)) bytes += "N0";
  bytes += '.';
  std::vector<std::uint64_t> positions;
  EXPECT_THAT(ParsePickle(AsBytes(bytes), "a.pkl",
                          {.consumed = [&](std::uint64_t at) { positions.push_back(at); }}),
              IsOk());
  // Every 4 MiB of both passes: the one that looks what the memo is read for,
  // and the one that executes.
  ASSERT_EQ(positions.size(), 4U);
  for (const std::size_t pass : {std::size_t{0}, std::size_t{2}}) {
    EXPECT_GE(positions[pass], 4U << 20);
    EXPECT_GE(positions[pass + 1] - positions[pass], 4U << 20);
    EXPECT_LE(positions[pass + 1], bytes.size());
  }
  EXPECT_THAT(Parse(bytes), IsOk()) << "nobody has to listen";
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

}  // namespace
}  // namespace ckpt::pickle

// What a reducer replaces leaves the graph, and nothing else does.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "formats/pickle/internal/builder.h"
#include "formats/pickle/reader.h"
#include "tests/testing/matchers.h"

namespace ckpt::pickle {
namespace {

using ::ckpt::testing::IsOk;
using ::testing::ElementsAre;
using namespace std::string_literals;

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
  // While the point is open, an object made before it gets a fresh inner list.
  struct Case {
    const char* name;
    std::string older;
    std::string before;  // the opcodes around the inner list that put it there
    std::string behind;
    NodeId (*inner)(const Graph& graph, NodeId root);
  };
  const auto first_item = [](const Graph& graph, NodeId root) { return graph.items(root)[0]; };
  const auto value = [](const Graph& graph, NodeId root) { return graph.items(root)[1]; };
  const auto appended = [](const Graph& graph, NodeId root) {
    return graph.items(graph.appended(root))[0];
  };
  const std::vector<Case> cases = {
      {"list", "]", "", "a", first_item},
      {"dict", "}", "N", "s", value},
      {"set", "\x8F", "(", "\x90", first_item},
      {"call", "cm\nf\n)R", "", "a", appended},
      {"instance", "cm\nf\n)\x81", "", "a", appended},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    // From the memo, and as a second reference on the stack.
    for (const auto& [keep, again] : {std::pair{"\x94"s, "h\0"s}, std::pair{""s, ""s}}) {
      const std::string point = "\x8C\1m\x8C\5Point\x93)\x81";
      const std::string inner = c.before + "]\x8C\6insidea" + c.behind;
      const std::string bytes =
          "\x80\4" + c.older + keep +
          (keep.empty() ? "2" + inner + "0" + point + "}b0." : point + again + inner + "0}b0.");
      PointReducer reducer;
      const auto parsed = ParsePickle(AsBytes(bytes), "a.pkl", {.reducer = &reducer});
      ASSERT_THAT(parsed, IsOk());
      const Graph& graph = parsed->graph;
      const NodeId list = c.inner(graph, parsed->root);
      ASSERT_LT(list, graph.size());
      EXPECT_EQ(graph.text(graph.items(list)[0]), "inside");
    }
  }
}

TEST(PickleReducerTest, ForgetsStatesOfEveryKind) {
  const std::string state =
      "}(\x8C\1a\x8F(K\1\x90\x8C\1b(K\2\x91\x8C\1c\x96\2\0\0\0\0\0\0\0zz\x8C\1d"
      "C\1y"
      "\x8C\1e"
      "cm\nf\n)R}b\x8C\1gcm\nf\n)\x81}b\x8C\1h(K\3K\4K\5t\x8C\1i"
      "\x8A\x09\0\0\0\0\0\0\0\0\1u"s;
  std::string bytes = "\x80\5](";
  for (int i = 0; i < 100; ++i) bytes += "\x8C\1m\x8C\5Point\x93)\x81" + state + "b";
  bytes +=
      "\x8C\4last\x96\1\0\0\0\0\0\0\0a(K\7\x91"
      "e."s;
  PointReducer reducer;
  const auto parsed = ParsePickle(AsBytes(bytes), "a.pkl", {.reducer = &reducer});
  ASSERT_THAT(parsed, IsOk());
  const Graph& graph = parsed->graph;
  const auto items = graph.items(parsed->root);
  ASSERT_EQ(items.size(), 103U);
  EXPECT_EQ(graph.record(items[99]).value, 16U);
  // Of each point its class, named in full every time, and itself.
  EXPECT_LE(graph.size(), kFirstFreeNode + 4 * 100 + 4);
  EXPECT_EQ(graph.text(items[100]), "last");
  EXPECT_EQ(graph.text(items[101]), "a");
  EXPECT_THAT(graph.items(items[102]), ElementsAre(kFirstIntNode + 7));
}

TEST(PickleReducerTest, AnObjectThatCameBackKeepsItsNumber) {
  // Remembered and dropped; its state comes when it is back from the memo.
  const std::string bytes =
      "\x80\4\x8C\1m\x8C\5Point\x93)\x81\x94"
      "0\x8C\4keeph\0}b\x86."s;
  PointReducer reducer;
  const auto parsed = ParsePickle(AsBytes(bytes), "a.pkl", {.reducer = &reducer});
  ASSERT_THAT(parsed, IsOk());
  const auto items = parsed->graph.items(parsed->root);
  EXPECT_EQ(parsed->graph.text(items[0]), "keep");
  EXPECT_EQ(parsed->graph.kind(items[1]), NodeKind::kRecord);
}

TEST(PickleReducerTest, KeepsTheClassAndTheStateThatTheMemoStillNeeds) {
  PointReducer reducer;
  const auto called =
      ParsePickle(AsBytes("\x80\2(cm\nPoint\nq\0M\x10\1\x85Rh\0t."s), "p", {.reducer = &reducer});
  ASSERT_THAT(called, IsOk());
  const NodeId cls = called->graph.items(called->root)[1];
  ASSERT_LT(cls, called->graph.size());
  EXPECT_EQ(called->graph.QualifiedName(cls), "m.Point");
  const auto built =
      ParsePickle(AsBytes("\x80\4\x8C\1m\x8C\5Point\x93)\x81}\x94\x8C\1xNsbh\0\x86."s), "p",
                  {.reducer = &reducer});
  ASSERT_THAT(built, IsOk());
  const NodeId state = built->graph.items(built->root)[1];
  ASSERT_EQ(built->graph.kind(state), NodeKind::kDict);
  EXPECT_EQ(built->graph.items(state).size(), 2U);
}

TEST(PickleReducerTest, KeepsArgumentsThatTheMemoStillNeeds) {
  const std::string bytes = "\x80\4\x8C\1m\x8C\5Point\x93M\x10\1\x94\x85Rh\0\x86."s;
  PointReducer reducer;
  const auto parsed = ParsePickle(AsBytes(bytes), "a.pkl", {.reducer = &reducer});
  ASSERT_THAT(parsed, IsOk());
  const auto items = parsed->graph.items(parsed->root);
  EXPECT_EQ(parsed->graph.record(items[0]).value, 272U);
  EXPECT_EQ(parsed->graph.integer(items[1]), 272);
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

TEST(PickleReducerTest, KeepsWhatAnOlderListTookDuringACall) {
  const std::string bytes = "\x80\4]\x94\x8C\1m\x8C\5Point\x93h\0]\x8C\6insideaa0K\7\x85R0."s;
  PointReducer reducer;
  const auto parsed = ParsePickle(AsBytes(bytes), "a.pkl", {.reducer = &reducer});
  ASSERT_THAT(parsed, IsOk());
  const Graph& graph = parsed->graph;
  const NodeId inner = graph.items(parsed->root)[0];
  ASSERT_LT(inner, graph.size());
  EXPECT_EQ(graph.text(graph.items(inner)[0]), "inside");
}

}  // namespace
}  // namespace ckpt::pickle

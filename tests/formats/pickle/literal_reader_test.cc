// Instances that are read at once, against the same instances read opcode by opcode.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include "formats/pickle/reader.h"
#include "tests/testing/matchers.h"

namespace ckpt::pickle {
namespace {

using ::ckpt::testing::IsOk;
using namespace std::string_literals;

// Makes of every instance of m.C the text of its fields; literals only where they are wanted.
class FieldsReducer final : public Reducer {
 public:
  explicit FieldsReducer(bool wants_literals) : wants_literals_(wants_literals) {}

  std::optional<Record> OnCall(const Graph& graph, NodeId callable, NodeId args) override {
    if (!graph.IsGlobal(callable, "m", "Size")) return std::nullopt;
    return Add(Integers(graph, graph.items(args)[0]));
  }
  std::optional<Record> OnBuilt(const Graph& graph, NodeId instance, NodeId state) override {
    if (!graph.IsGlobal(graph.callable(instance), "m", "C")) return std::nullopt;
    std::string text;
    const auto items = graph.items(state);
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      text += fmt::format("{}={} ", graph.text(items[i]), ValueOf(graph, items[i + 1]));
    }
    return Add(std::move(text));
  }
  std::optional<Record> OnLiteral(const Graph& graph, const InstanceLiteral& instance) override {
    if (!wants_literals_ || !graph.IsGlobal(instance.cls, "m", "C")) return std::nullopt;
    ++num_literals_;
    std::string text;
    for (const LiteralField& field : instance.fields) {
      text += fmt::format("{}={} ", graph.text(field.name), ValueOf(graph, field.value));
    }
    return Add(std::move(text));
  }

  [[nodiscard]] const std::string& text(const Record& record) const { return texts_[record.value]; }
  [[nodiscard]] int num_literals() const { return num_literals_; }

 private:
  static std::string Integers(const Graph& graph, NodeId tuple) {
    std::vector<std::int64_t> integers;
    for (const NodeId item : graph.items(tuple)) integers.push_back(graph.integer(item));
    return fmt::format("{}", integers);
  }
  [[nodiscard]] std::string ValueOf(const Graph& graph, NodeId node) const {
    switch (graph.kind(node)) {
      case NodeKind::kInt:
        return std::to_string(graph.integer(node));
      case NodeKind::kText:
        return std::string(graph.text(node));
      case NodeKind::kRecord:
        return texts_[graph.record(node).value];
      default:
        return std::string(NodeKindName(graph.kind(node)));
    }
  }
  [[nodiscard]] std::string ValueOf(const Graph& graph, const Literal& value) const {
    switch (value.kind) {
      case Literal::Kind::kNone:
        return "None";
      case Literal::Kind::kInt:
        return std::to_string(value.integer);
      case Literal::Kind::kText:
        return std::string(value.text);
      case Literal::Kind::kNode:
        return ValueOf(graph, value.node);
      case Literal::Kind::kCall:
        return fmt::format("{}",
                           std::vector<std::int64_t>(value.integers.begin(), value.integers.end()));
    }
    return "";
  }
  Record Add(std::string text) {
    texts_.push_back(std::move(text));
    return {1, texts_.size() - 1};
  }

  bool wants_literals_;
  int num_literals_ = 0;
  std::vector<std::string> texts_;
};

// All that a parse says, and how many instances it took at once.
struct Reading {
  std::string text;
  int num_literals = 0;
};

Reading Read(std::string_view bytes, bool wants_literals) {
  FieldsReducer reducer(wants_literals);
  const auto parsed = ParsePickle(AsBytes(bytes), "p", {.reducer = &reducer});
  if (!parsed.ok()) return {parsed.status().ToString(), reducer.num_literals()};
  const Graph& graph = parsed->graph;
  Reading reading{fmt::format("{} nodes:", graph.size()), reducer.num_literals()};
  for (const NodeId item : graph.items(parsed->root)) {
    reading.text += graph.kind(item) == NodeKind::kRecord ? "\n" + reducer.text(graph.record(item))
                                                          : " " + graph.QualifiedName(item);
  }
  for (const GlobalName& called : graph.CalledGlobals()) reading.text += called.name;
  return reading;
}

// The slots of what every pickle here starts with.
const std::string kPrelude =
    "\x80\4]\x94"
    "cm\nC\n\x94"            // h1
    "cm\nSize\n\x94"         // h2
    "\x8C\5named\x94"        // h3
    "K\1K\2\x86\x94"         // h4: a tuple
    "]\x94"                  // h5: a list
    "h\2K\7\x85\x85R\x94"s;  // h6: a record
const std::string kPop = "00000";

// A list of the class, and three instances with these fields, far from the end.
std::string Pickle(const std::string& fields) {
  const std::string instance = "h\1)\x81\x94}\x94(" + fields + "ub";
  return kPrelude + kPop + "0(" + instance + instance + "h\1" + instance + "\x8C\xFF" +
         std::string(255, ' ') + "\x94" + "0e.";
}

struct LiteralCase {
  const char* name;
  std::string fields;
};

TEST(LiteralReaderTest, ReadsInOnePieceWhatTheOpcodesSay) {
  const std::vector<LiteralCase> cases = {
      {"None", "h\3N"},
      {"Text", "h\3\x8C\2ab\x94"},
      {"LongText", "h\3\x8C\xFA" + std::string(250, 'x') + "\x94"},
      {"TextOfTheMemo", "h\3h\3"},
      {"WideSlots", "j\3\0\0\0j\3\0\0\0"s},
      {"Tuple", "h\3h\4"},
      {"Record", "h\3h\6"},
      {"SmallInt", "h\3K\xFF"},
      {"TwoByteInt", "h\3M\xFF\xFF"},
      {"NegativeInt", "h\3J\xFF\xFF\xFF\xFF"},
      {"LongInt", "h\3\x8A\5\0\0\0\0\1"s},
      {"NegativeLongInt", "h\3\x8A\5\0\0\0\0\xFF"s},
      {"LongestInt", "h\3\x8A\x08\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F"},
      {"CallOfNothing", "h\3h\2)\x85R"},
      {"CallOfOne", "h\3h\2K\1\x85\x94\x85\x94R\x94"},
      {"CallOfThree", "h\3h\2K\1M\2\2K\3\x87\x94\x85\x94R\x94"},
      {"CallOfFive", "h\3h\2(K\1K\2K\3K\4K\5t\x94\x85\x94R\x94"},
      {"EightFields", "h\3Nh\3Nh\3Nh\3Nh\3Nh\3Nh\3Nh\3N"},
  };
  for (const LiteralCase& c : cases) {
    const std::string bytes = Pickle(c.fields);
    const Reading at_once = Read(bytes, true);
    EXPECT_EQ(at_once.num_literals, 3) << c.name;
    EXPECT_EQ(at_once.text, Read(bytes, false).text) << c.name;
    EXPECT_THAT(at_once.text, ::testing::HasSubstr("named=")) << c.name;
  }
}

TEST(LiteralReaderTest, LeavesEverythingElseToTheOpcodes) {
  const std::vector<LiteralCase> cases = {
      {"NoNameFromTheMemo", "\x8C\1aN"},
      {"NameThatIsNoText", "h\3Nh\4N"},
      {"UnsetName", "h\x63N"},
      {"ListOfTheMemo", "h\3h\5"},
      {"UnsetValue", "h\3h\x63"},
      {"True", "h\3\x88"},
      {"TextPastAscii", "h\3\x8C\2\xC3\xA9"},
      {"ZeroInNoBytes", "h\3\x8A\0"s},
      {"IntPast64Bits", "h\3\x8A\x09\0\0\0\0\0\0\0\0\1"s},
      {"FourWithoutMark", "h\3h\2K\1K\2K\3K\4\x85R"},
      {"NineInACall", "h\3h\2(K\1K\2K\3K\4K\5K\6K\7K\1K\1t\x85R"},
      {"TextInACall", "h\3h\2\x8C\1a\x85\x85R"},
      {"ShorterTupleThanItsItems", "h\3h\2K\1K\2\x85\x85R"},
      {"CallOfTwoArguments", "h\3h\2)N\x86R"},
      {"CallThatIsNone", "h\3h\2)\x85\x81"},
      {"NineFields", "h\3Nh\3Nh\3Nh\3Nh\3Nh\3Nh\3Nh\3Nh\3N"},
  };
  for (const LiteralCase& c : cases) {
    const std::string bytes = Pickle(c.fields);
    const Reading at_once = Read(bytes, true);
    EXPECT_EQ(at_once.num_literals, 0) << c.name;
    EXPECT_EQ(at_once.text, Read(bytes, false).text) << c.name;
  }
}

TEST(LiteralReaderTest, KeepsWhatALaterGetReads) {
  // The text of the field goes to slot 8, which comes back behind the instance.
  const std::string tail = "h\x09\x8C\xFF" + std::string(255, ' ') + "\x94" + "0e.";
  const std::string bytes = kPrelude + kPop + "0(h\1)\x81\x94}\x94(h\3\x8C\2ab\x94ubh\x09" + tail;
  EXPECT_EQ(Read(bytes, true).num_literals, 0);
  EXPECT_EQ(Read(bytes, true).text, Read(bytes, false).text);
}

TEST(LiteralReaderTest, SaysTheSameOfEveryCut) {
  // A text so long that it may reach the end of what the look-ahead has seen.
  const std::string bytes = Pickle("h\3\x8C\xFA" + std::string(250, 'x') + "\x94");
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    const std::string_view cut = std::string_view(bytes).substr(0, length);
    ASSERT_EQ(Read(cut, true).text, Read(cut, false).text) << length;
  }
}

}  // namespace
}  // namespace ckpt::pickle

#include "core/layout/layout_table.h"

#include <ostream>
#include <string>

#include <gtest/gtest.h>

#include "tests/testing/matchers.h"

namespace ckpt::layout {
namespace {

using testing::FailsWith;
using testing::IsOk;

constexpr std::string_view kHead =
    "family test\n"
    "dim l = 2\n"
    "dim a = 3\n"
    "dim b = 4\n"
    "dim b0 = 2\n"
    "dim b1 = 2\n"
    "split b = b0 b1\n"
    "logical x [l a b]\n"
    "logical y [l a b]\n"
    "naming one\n";

TEST(LayoutTable, ReadsEveryStatement) {
  const auto table = ParseLayoutTable("# comment\n" + std::string(kHead) +
                                          "  prefix p. | \"\"\n"
                                          "  choice style new | old\n"
                                          "  source_choice bits all | few\n"
                                          "  ignore *.junk \"not # needed\"\n"
                                          "  include more\n"
                                          "  if style == \"new\"\n"
                                          "    t.<l>.x.w<a+1> : b = x\n"
                                          "  end\n"
                                          "  t.<l>.xy : ({x | y} \\\n"
                                          "     b1) a b0 when style == \"old\"\n",
                                      "test", [](std::string_view name) -> Result<std::string> {
                                        return "ignore " + std::string(name) + " \"included\"\n";
                                      });
  ASSERT_THAT(table, IsOk());
  const Naming& naming = *table->FindNaming("one");
  EXPECT_EQ(naming.prefixes, (std::vector<std::string>{"p.", ""}));
  EXPECT_EQ(naming.choices[0].values, (std::vector<std::string>{"new", "old"}));
  EXPECT_FALSE(naming.choices[0].is_of_sources);
  EXPECT_EQ(naming.choices[1].name, "bits");
  EXPECT_TRUE(naming.choices[1].is_of_sources);
  ASSERT_EQ(naming.ignores.size(), 2U);
  EXPECT_EQ(naming.ignores[0].reason, "not # needed");
  EXPECT_EQ(naming.ignores[1].pattern, "more");
  ASSERT_EQ(naming.rules.size(), 2U);
  EXPECT_EQ(naming.rules[0].name_axes, (std::vector<std::string>{"l", "a"}));
  EXPECT_EQ(naming.rules[0].name[1].plus, 1);
  EXPECT_EQ(naming.rules[0].when.size(), 1U);
  EXPECT_EQ(naming.rules[1].dims.size(), 3U);
  EXPECT_EQ(naming.rules[1].dims[0][0].slots.size(), 2U);
  EXPECT_EQ(table->Atoms("b"), (std::vector<std::string>{"b0", "b1"}));
}

// A tab is a blank, the last line may go on without another, and a condition may ask for its axis
// twice.
TEST(LayoutTable, ReadsWhatIsWrittenUnusually) {
  const auto table = ParseLayoutTable(
      "family f\ndim a = 4\ndim b = 4\n"
      "logical x [a b] when a > 0 and a < 3\n"
      "naming one\nt\t:\ta\tb\t=\tx \\",
      "test");
  ASSERT_THAT(table, IsOk());
  EXPECT_EQ(table->FindNaming("one")->rules[0].dims.size(), 2U);
}

struct BadTable {
  const char* name;
  const char* rest;  // after kHead
};
void PrintTo(const BadTable& c, std::ostream* os) { *os << c.name; }
class BadTableTest : public ::testing::TestWithParam<BadTable> {};

TEST_P(BadTableTest, IsRefusedWithItsLine) {
  const auto table = ParseLayoutTable(std::string(kHead) + GetParam().rest, "bad.layout");
  ASSERT_THAT(table, FailsWith(ErrorKind::kBadMetadata));
  EXPECT_TRUE(table.status().first().file.starts_with("bad.layout"));
}

INSTANTIATE_TEST_SUITE_P(Lines, BadTableTest,
                         ::testing::Values(BadTable{"UnknownStatement", "nonsense here\n"},
                                           BadTable{"UnknownAxis", "t.<q> : a b = x\n"},
                                           BadTable{"UnknownLogical", "t.<l> : a b = z\n"},
                                           BadTable{"AxisNeverConsumed", "t : a b = x\n"},
                                           BadTable{"AxisConsumedTwice", "t.<l> : l a b = x\n"},
                                           BadTable{"SplitAndWholeAxis", "t.<l> : a b b0 = x\n"},
                                           BadTable{"OneSlotLacksAnAxis", "t.<l> : {x: a | y} b\n"},
                                           BadTable{"TwoSums", "t.<l> : {x | y} {x | y} a b\n"},
                                           BadTable{"NoLogical", "t.<l> : a b\n"},
                                           BadTable{"SumAndLogical", "t.<l> : ({x | y} a) b = x\n"},
                                           BadTable{"OpenBrace", "t.<l> : ({x | y a) b\n"},
                                           BadTable{"OpenParenthesis", "t.<l> : (a b = x\n"},
                                           BadTable{"OpenName", "t.<l : a b = x\n"},
                                           BadTable{"BadOffset", "t.<l+x> : a b = x\n"},
                                           BadTable{"BadCondition", "t.<l> : a b = x when (\n"},
                                           BadTable{"OpenIf", "if true\n t.<l> : a b = x\n"},
                                           BadTable{"StrayEnd", "end\n"},
                                           BadTable{"IncludeWithoutResolver", "include other\n"},
                                           BadTable{"LateLogical", "logical z [a]\n"},
                                           BadTable{"SameNamingTwice", "naming one\n"},
                                           BadTable{"IgnoreWithoutReason", "ignore a.*\n"}),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(LayoutTable, TakesWhatIsJustWithinItsLimits) {
  const auto table = ParseLayoutTable(
      std::string(kHead) + "choice q a|b|c|d|e|f|g|h\nignore a \"\"\nt.<l+1000000> : a b = x\n",
      "test");
  ASSERT_THAT(table, IsOk());
  EXPECT_EQ(table->FindNaming("one")->choices[0].values.size(), 8U);
  EXPECT_EQ(table->FindNaming("one")->ignores[0].reason, "");
  EXPECT_EQ(table->FindNaming("one")->rules[0].name[0].plus, 1'000'000);
}

TEST(LayoutTable, IncludesAreEightDeepAtMost) {
  const auto parse = [](int depth) {
    return ParseLayoutTable("include 1\n", "0", [=](std::string_view name) -> Result<std::string> {
      const int level = std::stoi(std::string(name));
      return level == depth ? std::string(kHead) : "include " + std::to_string(level + 1) + "\n";
    });
  };
  EXPECT_THAT(parse(8), IsOk());
  EXPECT_THAT(parse(9), FailsWith(ErrorKind::kResource));
}

TEST(LayoutTable, StopsIncludesThatGoInCircles) {
  EXPECT_THAT(ParseLayoutTable("include self\n", "self",
                               [](std::string_view) -> Result<std::string> {
                                 return std::string("include self\n");
                               }),
              FailsWith(ErrorKind::kResource));
}

}  // namespace
}  // namespace ckpt::layout

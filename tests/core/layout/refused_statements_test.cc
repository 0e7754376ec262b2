// Every rule that a statement of a layout table can break, with what the message says.
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "core/layout/expr.h"
#include "core/layout/layout_table.h"
#include "tests/testing/matchers.h"

namespace ckpt::layout {
namespace {

using testing::FailsWith;
using testing::IsOk;

constexpr const char* kRefusedHead =
    "family f\n"
    "let n = 4\n"
    "dim l = n\ndim a = n\ndim b = n\ndim b0 = 2\ndim b1 = 2\n"
    "split b = b0 b1\n"
    "logical x [l a b]\nlogical y [l b]\n";
constexpr const char* kRefusedNaming = "naming one\nt.<l> : a b = x\n";

struct Refused {
  const char* name;
  const char* statement;
  const char* says;
  bool is_in_naming = false;
};
void PrintTo(const Refused& c, std::ostream* os) { *os << c.name; }

class RefusedStatementTest : public ::testing::TestWithParam<Refused> {};

TEST_P(RefusedStatementTest, SaysWhy) {
  const std::string statement = std::string(GetParam().statement) + "\n";
  const std::string text = GetParam().is_in_naming
                               ? std::string(kRefusedHead) + kRefusedNaming + statement
                               : std::string(kRefusedHead) + statement + kRefusedNaming;
  const auto table = ParseLayoutTable(text, "t");
  ASSERT_THAT(table, FailsWith(ErrorKind::kBadMetadata));
  EXPECT_THAT(table.status().ToString(), ::testing::HasSubstr(GetParam().says));
}

INSTANTIATE_TEST_SUITE_P(
    Definitions, RefusedStatementTest,
    ::testing::Values(
        Refused{"SecondFamily", "family g", "one family name"},
        Refused{"NoEquals", "let q", "no '='"}, Refused{"OpenParameters", "let q(a = 1", "no ')'"},
        Refused{"BadParameter", "let q(1) = 1", "not a parameter name"},
        Refused{"EmptyParameter", "let q(x,) = 1", "not a parameter name"},
        Refused{"BadName", "let 1q = 1", "can be defined"},
        Refused{"BuiltIn", "let min(a, b) = 1", "can be defined"},
        Refused{"Twice", "let n = 5", "defined twice"},
        Refused{"BadBody", "let q = (", "expected a value"},
        Refused{"BadMatch", "match (", "expected a value"},
        Refused{"DimWithParameters", "dim q(x) = x", "no parameters"},
        Refused{"DimWithoutValue", "dim q", "no '='"},
        Refused{"DimWithWordAfterMin", "dim q = 1 min one", "expected an operator or the end"},
        Refused{"DimWithMoreAfterMin", "dim q = 1 min 3x", "expected an operator or the end"}),
    [](const auto& test) { return std::string(test.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Axes, RefusedStatementTest,
    ::testing::Values(Refused{"SplitOfTwoSides", "split a = b0 = b1", "AXIS = PARTS"},
                      Refused{"SplitOfNothing", "split", "AXIS = PARTS"},
                      Refused{"SplitOfUnknown", "split q = b0 b1", "no dim"},
                      Refused{"SplitIntoUnknown", "split a = b0 q", "no dim"},
                      Refused{"SplitOfAPart", "split b0 = a l", "not split again"},
                      Refused{"SplitIntoItself", "split a = a b0", "unsplit axes"},
                      Refused{"SplitIntoSplit", "split a = b l", "unsplit axes"},
                      Refused{"SplitIntoOne", "split a = b0", "two parts or more"},
                      Refused{"SplitTwice", "split b = b0 b1", "split once"}),
    [](const auto& test) { return std::string(test.param.name); });

INSTANTIATE_TEST_SUITE_P(
    ExtraNumbers, RefusedStatementTest,
    ::testing::Values(
        Refused{"OfUnknownAxis", "extra q from n counted by k", "no dim"},
        Refused{"OfSplitAxis", "extra b from n counted by k", "AXIS from EXPR counted by KEY"},
        Refused{"WithoutStart", "extra l counted by k", "AXIS from EXPR counted by KEY"},
        Refused{"WithoutKey", "extra l from n", "AXIS from EXPR counted by KEY"},
        Refused{"BadKey", "extra l from n counted by 1k", "key of a configuration"},
        Refused{"Twice", "extra l from n counted by k\nextra l from n counted by k",
                "AXIS from EXPR counted by KEY"},
        Refused{"NameWithoutNumbers", "naming two\nextra t.<l>. = u.<l>.", "says of extra numbers"},
        Refused{"NameBehindRules",
                "extra l from n counted by k\nnaming two\nt.<l> : a b = x\nextra t.<l>. = u.<l>.",
                "before its rules"},
        Refused{"NameOfOneSide", "extra l from n counted by k\nnaming two\nextra t.<l>.",
                "FROM = TO"},
        Refused{"NameWithoutAxis", "extra l from n counted by k\nnaming two\nextra t. = u.<l>.",
                "no extra number"},
        Refused{"WithoutWhat", "extra l from n counted by k\nnaming two\nwithout all",
                "without extra"},
        Refused{"BothWays",
                "extra l from n counted by k\nnaming two\nwithout extra\nextra t.<l>. = u.<l>.",
                "says of extra numbers"},
        Refused{"WithoutOutsideANaming", "without extra", "belongs to a naming"}),
    [](const auto& test) { return std::string(test.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Logicals, RefusedStatementTest,
    ::testing::Values(Refused{"Twice", "logical x [a]", "new logical tensor"},
                      Refused{"Zero", "logical zero [a]", "new logical tensor"},
                      Refused{"BadName", "logical x-y [a]", "new logical tensor"},
                      Refused{"NoBrackets", "logical z a", "in brackets"},
                      Refused{"OpenBracket", "logical z [a", "in brackets"},
                      Refused{"UnknownAxis", "logical z [q]", "no dim"},
                      Refused{"AxisTwice", "logical z [a a]", "listed twice"},
                      Refused{"BadCondition", "logical z [a] when (", "syntax error"},
                      Refused{"ConditionOnTwoAxes", "logical z [a l] when a > l", "one axis only"}),
    [](const auto& test) { return std::string(test.param.name); });

INSTANTIATE_TEST_SUITE_P(
    OutsideNamings, RefusedStatementTest,
    ::testing::Values(Refused{"Rule", "t.<l> : a b = x", "belongs to a naming"},
                      Refused{"Object", "object t.<l> : = x", "belongs to a naming"},
                      Refused{"If", "if true", "belongs to a naming"},
                      Refused{"Prefix", "prefix \"\"", "belongs to a naming"},
                      Refused{"Strip", "strip t. \"r\" when true", "belongs to a naming"},
                      Refused{"Choice", "choice q a | b", "belongs to a naming"}),
    [](const auto& test) { return std::string(test.param.name); });

INSTANTIATE_TEST_SUITE_P(
    InsideNamings, RefusedStatementTest,
    ::testing::Values(
        Refused{"BadNaming", "naming 1", "new naming", true},
        Refused{"ObjectWithoutColon", "object o.<l> = x", "NAME : AXES = LOGICAL", true},
        Refused{"ObjectWithoutLogical", "object o.<l> : a", "NAME : AXES = LOGICAL", true},
        Refused{"ObjectThatIsDerived", "object o.<l> : a = x derived", "NAME : AXES", true},
        Refused{"ObjectOfAForeignAxis", "object o.<l> : a = y", "no such axis left", true},
        Refused{"ObjectOfAnAxisTwice", "object o.<l> : l = x", "no such axis left", true},
        Refused{"ObjectOfAProduct", "object o.<l> : (a b) = x", "is one axis", true},
        Refused{"StripAlways", "strip t. \"r\"", "and `when EXPR`", true},
        Refused{"StripWithoutReason", "strip t. when true", "a quoted reason", true},
        Refused{"NamingInsideIf", "if true\nnaming two", "no `end`", true},
        Refused{"IfInsideIf", "if true\nif true", "inside another", true},
        Refused{"BadIf", "if (", "expected a value", true},
        Refused{"EndWithMore", "if true\nend if", "closes no", true},
        Refused{"ChoiceOfNothing", "choice q", "NAME a | b", true},
        Refused{"ChoiceOfBadName", "choice 1 a | b", "NAME a | b", true},
        Refused{"ChoiceOfBadValue", "choice q a | 1", "NAME a | b", true},
        Refused{"ChoiceOfNineValues", "choice q a|b|c|d|e|f|g|h|i", "NAME a | b", true},
        Refused{"FiveChoices", "choice c1 a\nchoice c2 a\nchoice c3 a\nchoice c4 a\nchoice c5 a",
                "four choices", true},
        Refused{"IgnoreForAQuote", "ignore a \"", "quoted reason", true},
        Refused{"IgnoreOpensText", "ignore a \"why", "quoted reason", true},
        Refused{"IgnoreClosesText", "ignore a why\"", "quoted reason", true},
        Refused{"AxisBoundTwice", "u.<l>.<l> : a b = x", "bound twice", true},
        Refused{"OffsetTooLarge", "u.<l+1000001> : a b = x", "not an offset", true},
        Refused{"OffsetOverflows", "u.<l+99999999999999999999> : a b = x", "not an offset", true},
        Refused{"OffsetWithMore", "u.<l+1x> : a b = x", "not an offset", true},
        Refused{"EmptyProduct", "u.<l> : () a b = x", "no factors", true},
        Refused{"UnknownFactor", "u.<l> : q a b = x", "no dim", true},
        Refused{"BadCondition", "u.<l> : a b = x when (", "syntax error", true},
        Refused{"UnknownAxisInTheName", "u.<q> : a b = x", "no dim", true},
        Refused{"UnknownAxisInASum", "u.<l> : {x: q | y} a b", "no dim", true},
        Refused{"SumEndsEarly", "u.<l> : {", "no '}'", true},
        Refused{"SumEndsAfterName", "u.<l> : {x", "no '}'", true},
        Refused{"SumEndsAfterSlot", "u.<l> : {x: a", "no '}'", true},
        Refused{"SumWithWordsBetween", "u.<l> : ({x: a | y )", "axis has no dim", true},
        Refused{"NoDims", "u.<l> : = x", "at least one axis", true}),
    [](const auto& test) { return std::string(test.param.name); });

// Whatever its spaces, and whether its condition stands in an `if`.
INSTANTIATE_TEST_SUITE_P(
    SaidTwice, RefusedStatementTest,
    ::testing::Values(
        Refused{"Rule", "t.<l>  :  a b = x", "t:12 says the same: t:13", true},
        Refused{"Sum", "u.<l> : {x: a b}\nu.<l> : { x :a b }", "t:13 says the same: t:14", true},
        Refused{"Condition", "if n > 2\nt.<l> : a b = x\nend\nt.<l> : a b = x when n > 2",
                "t:14 says the same: t:16", true},
        Refused{"Conditions",
                "if n > 2\nu.<l> : b = y when n > 3\nend\nif n > 3\nu.<l> : b = y when n > 2\nend",
                "t:14 says the same: t:17", true},
        Refused{"Copy", "t.<l> : a b = x derived\nt.<l> : a b = x derived",
                "t:13 says the same: t:14", true},
        Refused{"Stacked",
                "u : l b = y when n > 2\nstack l when n > 2\nu.<l>.v : b = y\nu.<l>.v : b = y\nend",
                "t:15 says the same: t:16", true},
        Refused{"Object", "object o.<l> : = x\nobject o.<l> : = x", "t:13 says the same: t:14",
                true},
        Refused{"Ignore", "ignore o.* \"why\"\nignore o.*  \"why\"", "t:13 says the same: t:14",
                true}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(RefusedStatements, ARuleThatAnIncludedFileHas) {
  const auto included = [](std::string_view) -> Result<std::string> {
    return std::string("# names\nt.<l> : a b = x\n");
  };
  const auto table = ParseLayoutTable(
      std::string(kRefusedHead) + kRefusedNaming + "include shared\n", "t", included);
  ASSERT_THAT(table, FailsWith(ErrorKind::kBadMetadata));
  EXPECT_EQ(table.status().first().file, "shared:2");
  EXPECT_EQ(table.status().first().message, "t:12 says the same");
}

// Of another naming, at other times, or of a copy, it is another rule.
TEST(RefusedStatements, NoRuleThatSaysAnythingElse) {
  EXPECT_THAT(ParseLayoutTable(std::string(kRefusedHead) + kRefusedNaming +
                                   "t.<l> : a b = x when n > 2\nt.<l> : a b = x when n > 3\n"
                                   "t.<l> : a b = x derived\nnaming two\nt.<l> : a b = x\n",
                               "t"),
              IsOk());
}

TEST(RefusedStatements, AFileWithoutFamily) {
  EXPECT_THAT(ParseLayoutTable("let a = 1\n", "t"), FailsWith(ErrorKind::kBadMetadata));
  EXPECT_THAT(ParseLayoutTable("", "t"), FailsWith(ErrorKind::kBadMetadata));
}

TEST(RefusedStatements, AnIncludeThatIsNotThere) {
  const auto nothing = [](std::string_view) -> Result<std::string> {
    return Error(ErrorKind::kNotFound, "no such table");
  };
  EXPECT_THAT(ParseLayoutTable("include other\n", "t", nothing), FailsWith(ErrorKind::kNotFound));
}

// The tokens of an expression that has everything.
const std::vector<std::string> kTokens = {
    "not", "(",  "a",      "?",  "-", "b",     ":", "[",   "x", "+",   "1",  "for", "x",   "in",
    "c",   "if", "x",      "!=", "2", "]",     "[", "0",   "]", ")",   "in", "[",   "min", "(",
    "1",   ",",  "2.5e-3", ")",  ",", "\"t\"", "]", "and", "d", "not", "in", "e",   "??",  "f"};

std::string Join(std::span<const std::string> tokens) {
  std::string text;
  for (const std::string& token : tokens) text += token + " ";
  return text;
}

TEST(RefusedExpressions, EveryCutOfALongOne) {
  const std::string text = Join(kTokens);
  ASSERT_THAT(Expr::Parse(text), IsOk());
  int refused = 0;
  for (std::size_t size = 0; size < text.size(); ++size) {
    refused += Expr::Parse(text.substr(0, size)).ok() ? 0 : 1;
  }
  EXPECT_GT(refused, 60);
}

TEST(RefusedExpressions, ACharacterThatStartsNoTokenIsNamedWhereverItStands) {
  for (std::size_t i = 0; i <= kTokens.size(); ++i) {
    const std::string before = Join(std::span(kTokens).first(i));
    const auto expr = Expr::Parse(before + "$ " + Join(std::span(kTokens).subspan(i)));
    ASSERT_THAT(expr, FailsWith(ErrorKind::kBadMetadata)) << before;
    const Problem& problem = expr.status().first();
    EXPECT_EQ(problem.message, "expression has an unknown character") << before;
    EXPECT_THAT(problem.actual,
                ::testing::StartsWith("column " + std::to_string(before.size() + 1) + " of "));
  }
}

TEST(RefusedExpressions, WordsInTheWrongPlace) {
  for (const char* text : {"a ? b",
                           "a ? b c",
                           "a ? b :",
                           "a ? : b",
                           "a not b",
                           "a in",
                           "a ??",
                           "a[",
                           "a[1",
                           "a[1 2]",
                           "f(1",
                           "f(1,",
                           "f(1 2)",
                           "[1 2]",
                           "[1,",
                           "[x for",
                           "[x for 1 in a]",
                           "[x for x of a]",
                           "[x for x a]",
                           "[x for x in",
                           "[x for x in a if",
                           "[x for x in a if b",
                           "not",
                           "-",
                           "1 + *",
                           "for",
                           "99999999999999999999x",
                           "1e",
                           "1e+",
                           "1.2.3",
                           "1e999",
                           "a { b",
                           "[] $",
                           "[1] $",
                           "\"a",
                           "a.",
                           "a..b",
                           ".a"}) {
    EXPECT_FALSE(Expr::Parse(text).ok()) << text;
  }
}

TEST(RefusedExpressions, NestedTooDeeply) {
  for (const std::string piece : {"not ", "-", "(", "[", "a ? b : "}) {
    std::string text;
    for (int i = 0; i < 300; ++i) text += piece;
    EXPECT_FALSE(Expr::Parse(text + "1").ok()) << piece;
  }
}

}  // namespace
}  // namespace ckpt::layout

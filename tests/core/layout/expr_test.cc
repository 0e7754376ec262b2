#include "core/layout/expr.h"

#include <ostream>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "core/layout/definitions.h"
#include "tests/testing/matchers.h"

namespace ckpt::layout {
namespace {

using testing::FailsWith;
using testing::IsOk;
using testing::IsOkAndHolds;

const Configuration& Config() {
  static const Configuration config = {{"hidden_size", 64},
                                       {"num_attention_heads", 4},
                                       {"rope_parameters.rope_theta", 500000.0},
                                       {"model_type", "llama"},
                                       {"tied", true},
                                       {"freq", Value::List{0, 1, 1}},
                                       {"big", INT64_MAX}};
  return config;
}

Result<Value> Evaluate(const std::string& text) {
  CKPT_ASSIGN_OR_RETURN(const Expr expr, Expr::Parse(text));
  return expr.Evaluate(ConfigurationNames(Config()));
}

struct ExprCase {
  const char* text;
  Value want;
};
void PrintTo(const ExprCase& c, std::ostream* os) { *os << c.text; }
class ExprTest : public ::testing::TestWithParam<ExprCase> {};

TEST_P(ExprTest, Evaluates) {
  EXPECT_THAT(Evaluate(GetParam().text), IsOkAndHolds(GetParam().want));
}

INSTANTIATE_TEST_SUITE_P(
    Values, ExprTest,
    ::testing::Values(
        ExprCase{"1 + 2 * 3", 7}, ExprCase{"1+2\t+4", 7}, ExprCase{"[7]", Value::List{7}},
        ExprCase{"(1 + 2) * 3", 9}, ExprCase{"7 - 2 - 1", 4}, ExprCase{"-2 * -3", 6},
        ExprCase{"7 % 4", 3}, ExprCase{"head_dim ?? hidden_size / num_attention_heads", 16},
        ExprCase{"a ?? b ?? 3", 3}, ExprCase{"absent", Value()}, ExprCase{"absent == null", true},
        ExprCase{"(absent ?? 1) == 1 and tied", true},
        ExprCase{"absent ?? 1 == 1", true},  // ?? binds tighter than ==
        ExprCase{"not tied or 1 < 2", true}, ExprCase{"1 == 1.0", true},
        ExprCase{"\"a\" == \"a\"", true}, ExprCase{"1 == \"1\"", false},
        ExprCase{"model_type in [\"llama\", \"x\"]", true}, ExprCase{"2 not in freq", true},
        ExprCase{"freq[1]", 1}, ExprCase{"tied ? 1 : 2 / 0", 1},
        ExprCase{"false and 1 / 0 == 1", false},
        ExprCase{"[i * i for i in 4 if i != 2]", Value::List{0, 1, 9}},
        ExprCase{"[x + 1 for x in freq]", Value::List{1, 2, 2}}, ExprCase{"ceildiv(10, 4)", 3},
        ExprCase{"min(2, 3) + max(2, 3)", 5}, ExprCase{"len(freq)", 3},
        ExprCase{"all([true, false])", false}, ExprCase{"any([true, false])", true},
        ExprCase{"all([])", true}, ExprCase{"is_list(freq) and not is_int(freq)", true},
        ExprCase{"int(rope_parameters.rope_theta)", 500000}, ExprCase{"int(0.5)", 0.5},
        ExprCase{"1e-6", 1e-6}, ExprCase{"2E+3", 2000.0}, ExprCase{"1 / 2.0", 0.5}));

struct BadExpr {
  const char* text;
  ErrorKind want;
};
void PrintTo(const BadExpr& c, std::ostream* os) { *os << c.text; }
class BadExprTest : public ::testing::TestWithParam<BadExpr> {};

TEST_P(BadExprTest, IsRefused) {
  EXPECT_THAT(Evaluate(GetParam().text), FailsWith(GetParam().want));
}

INSTANTIATE_TEST_SUITE_P(
    Errors, BadExprTest,
    ::testing::Values(
        BadExpr{"", ErrorKind::kBadMetadata}, BadExpr{"1 +", ErrorKind::kBadMetadata},
        BadExpr{"(1", ErrorKind::kBadMetadata}, BadExpr{"1 2", ErrorKind::kBadMetadata},
        BadExpr{"1 < 2 < 3", ErrorKind::kBadMetadata}, BadExpr{"\"open", ErrorKind::kBadMetadata},
        BadExpr{"1x", ErrorKind::kBadMetadata}, BadExpr{"$", ErrorKind::kBadMetadata},
        BadExpr{"[1, 2", ErrorKind::kBadMetadata}, BadExpr{"7 / 2", ErrorKind::kBadMetadata},
        BadExpr{"1 / 0", ErrorKind::kBadMetadata}, BadExpr{"1 % 0", ErrorKind::kBadMetadata},
        BadExpr{"absent + 1", ErrorKind::kBadMetadata},
        BadExpr{"absent and true", ErrorKind::kBadMetadata},
        BadExpr{"1 and true", ErrorKind::kBadMetadata},
        BadExpr{"model_type < 1", ErrorKind::kBadMetadata},
        BadExpr{"freq[3]", ErrorKind::kBadMetadata}, BadExpr{"freq[-1]", ErrorKind::kBadMetadata},
        BadExpr{"nosuch(1)", ErrorKind::kBadMetadata},
        BadExpr{"ceildiv(1)", ErrorKind::kBadMetadata},
        BadExpr{"ceildiv(1, 0)", ErrorKind::kBadMetadata}, BadExpr{"big + 1", ErrorKind::kResource},
        BadExpr{"big * 2", ErrorKind::kResource}, BadExpr{"-(0 - big - 1)", ErrorKind::kResource},
        BadExpr{"[i for i in big]", ErrorKind::kResource}));

TEST(ExprParse, BoundsLengthAndDepth) {
  EXPECT_THAT(Expr::Parse("1" + std::string(4095, ' ')), IsOk());
  EXPECT_THAT(Expr::Parse("1" + std::string(4096, ' ')), FailsWith(ErrorKind::kResource));
  const auto nested = [](int depth, const std::string& before, const std::string& behind) {
    std::string text = "1";
    for (int i = 0; i < depth; ++i) text = before + text + behind;
    return Expr::Parse(text).ok();
  };
  for (const auto& [before, behind] :
       {std::pair("(", ")"), std::pair("not ", ""), std::pair("-", "")}) {
    EXPECT_TRUE(nested(63, before, behind)) << before;
    EXPECT_FALSE(nested(64, before, behind)) << before;
  }
  EXPECT_THAT(Expr::Parse(std::string(5000, '1')), FailsWith(ErrorKind::kResource));
  EXPECT_THAT(Expr::Parse(std::string(1000, '(')), FailsWith(ErrorKind::kResource));
  EXPECT_THAT(Expr::Parse(std::string(1000, '-') + "1"), FailsWith(ErrorKind::kBadMetadata));
}

TEST(ExprErrors, NameTheMissingKey) {
  const Result<Value> value = Evaluate("intermediate_size / 2");
  ASSERT_FALSE(value.ok());
  EXPECT_NE(value.status().ToString().find("intermediate_size"), std::string::npos);
}

TEST(DefinitionsTest, SeeWhatStandsBeforeThemAndThenTheConfiguration) {
  Definitions definitions;
  ASSERT_THAT(definitions.Add("hidden_size = hidden_size + 1"), IsOk());
  ASSERT_THAT(definitions.Add("twice(x) = x * 2"), IsOk());
  ASSERT_THAT(definitions.Add("result = twice(hidden_size)"), IsOk());
  EXPECT_THAT(definitions.Add("result = 1"), FailsWith(ErrorKind::kBadMetadata));
  EXPECT_THAT(definitions.Add("len(x) = 1"), FailsWith(ErrorKind::kBadMetadata));
  const DefinedNames names(definitions, Config());
  EXPECT_THAT(names.Get("result"), IsOkAndHolds(Value(130)));
  for (const char* text : {"twice(1, 2)", "twice", "nosuch(1)"}) {
    EXPECT_THAT(Expr::Parse(text)->Evaluate(names), FailsWith(ErrorKind::kBadMetadata)) << text;
  }
  EXPECT_EQ(names.Explain(*Expr::Parse("result")), "hidden_size = 64");
  EXPECT_EQ(names.Explain(*Expr::Parse("max(result, tied) + result + absent")),
            "absent absent, hidden_size = 64, tied = true");
}

TEST(DefinitionsTest, TheFirstOneIsLikeTheOthers) {
  Definitions definitions;
  ASSERT_THAT(definitions.Add("half(x) = x / 2"), IsOk());
  EXPECT_THAT(definitions.Add("half(x) = x / 3"), FailsWith(ErrorKind::kBadMetadata));
  const DefinedNames names(definitions, Config());
  EXPECT_THAT(Expr::Parse("half(4)")->Evaluate(names), IsOkAndHolds(Value(2)));
  Definitions of_a_key;
  ASSERT_THAT(of_a_key.Add("width = hidden_size"), IsOk());
  EXPECT_EQ(DefinedNames(of_a_key, Config()).Explain(*Expr::Parse("width")), "hidden_size = 64");
}

TEST(DefinitionsTest, CannotBeRecursive) {
  Definitions definitions;
  ASSERT_THAT(definitions.Add("f(x) = f(x)"), IsOk());
  ASSERT_THAT(definitions.Add("y = y"), IsOk());
  const DefinedNames names(definitions, Config());
  EXPECT_THAT(Expr::Parse("f(1)")->Evaluate(names), FailsWith(ErrorKind::kBadMetadata));
  EXPECT_THAT(names.Get("y"), IsOkAndHolds(Value()));
}

}  // namespace
}  // namespace ckpt::layout

#include "core/base/wildcard.h"

#include <optional>
#include <string>

#include <gmock/gmock.h>

#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using ::testing::Eq;
using testing::FailsWith;
using testing::IsOk;
using ::testing::Optional;

TEST(WildcardTest, StarsKeepTheirTexts) {
  EXPECT_THAT(Rewrite("_orig_mod.*", "*", "_orig_mod.layers.0.w"), Optional(Eq("layers.0.w")));
  EXPECT_THAT(Rewrite("*._orig_mod.*", "*.*", "a.0._orig_mod.w.b"), Optional(Eq("a.0.w.b")));
  EXPECT_THAT(Rewrite("layers.*.mlp.*", "blocks.*.ffn.*", "layers.12.mlp.up.weight"),
              Optional(Eq("blocks.12.ffn.up.weight")));
  EXPECT_THAT(Rewrite("*.w", "*.weight", "w.w.w"), Optional(Eq("w.w.weight")));
  EXPECT_THAT(Rewrite("a", "b", "a"), Optional(Eq("b")));
}

TEST(WildcardTest, EverythingElseIsLiteral) {
  EXPECT_EQ(Rewrite("module.*", "*", "modules.w"), std::nullopt);
  EXPECT_EQ(Rewrite("a", "b", "ab"), std::nullopt);
  EXPECT_EQ(Rewrite("*.w", "*", "w"), std::nullopt);
  EXPECT_EQ(Rewrite("[ab].*", "*", "a.w"), std::nullopt);
  EXPECT_EQ(Rewrite("*ab*ba", "**", "aba"), std::nullopt);
}

TEST(WildcardTest, ABackslashTakesTheNextByteLiterally) {
  EXPECT_THAT(Rewrite(R"(a\*.*)", R"(*.b\*)", "a*.w"), Optional(Eq("w.b*")));
  EXPECT_EQ(Rewrite(R"(a\*)", "b", "ax"), std::nullopt);
  EXPECT_THAT(Rewrite(R"(a\\*)", "*", R"(a\w)"), Optional(Eq("w")));
  EXPECT_TRUE(HasStar(R"(\\*)"));
  EXPECT_FALSE(HasStar(R"(a\*)"));
}

TEST(WildcardTest, EveryTextHasAPattern) {
  for (const std::string text : {"a.w", "a*", "*", "\\", "\\*", "a=b", ""}) {
    EXPECT_FALSE(HasStar(LiteralPattern(text))) << text;
    EXPECT_THAT(Rewrite(LiteralPattern(text), LiteralPattern(text), text), Optional(Eq(text)));
    EXPECT_EQ(Rewrite(LiteralPattern(text), "b", text + "x"), std::nullopt);
  }
}

struct Rule {
  const char* text;
  const char* from;
  const char* to;
};

TEST(RewriteRuleTest, IsReadAndWritten) {
  for (const Rule& want :
       {Rule{"a.*=b.*", "a.*", "b.*"}, Rule{R"(a\=b=c)", "a=b", "c"}, Rule{R"(a=b\=c)", "a", "b=c"},
        Rule{R"(\*=\\)", R"(\*)", R"(\\)"}, Rule{"=", "", ""}}) {
    const auto rule = ParseRewrite(want.text);
    ASSERT_THAT(rule, IsOk()) << want.text;
    EXPECT_EQ(rule->from, want.from);
    EXPECT_EQ(rule->to, want.to);
    EXPECT_EQ(FormatRewrite(*rule), want.text);
  }
}

TEST(RewriteRuleTest, WhatIsAmbiguousIsRefused) {
  for (const char* text : {"a", "", R"(a\=b)", "a=b=c", R"(a\b=c)", R"(a=b\)"}) {
    EXPECT_THAT(ParseRewrite(text), FailsWith(ErrorKind::kUsage)) << text;
  }
}

TEST(RewriteRuleTest, BothSidesHaveAsManyStars) {
  EXPECT_THAT(ParseRewrite("a.*.*=*.*"), IsOk());
  EXPECT_THAT(ParseRewrite("a.*=b"), FailsWith(ErrorKind::kUsage));
  EXPECT_THAT(ParseRewrite("a=*"), FailsWith(ErrorKind::kUsage));
  EXPECT_THAT(ParseRewrite(R"(a.*=\*)"), FailsWith(ErrorKind::kUsage));
}

}  // namespace
}  // namespace ckpt

#include "core/base/wildcard.h"

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

TEST(WildcardTest, BothSidesHaveAsManyStars) {
  EXPECT_THAT(CheckRewrite("a.*.*", "*.*"), IsOk());
  EXPECT_THAT(CheckRewrite("a.*", "b"), FailsWith(ErrorKind::kUsage));
  EXPECT_THAT(CheckRewrite("a", "*"), FailsWith(ErrorKind::kUsage));
}

}  // namespace
}  // namespace ckpt

#include "core/base/glob.h"

#include <string>

#include <gmock/gmock.h>

namespace ckpt {
namespace {

TEST(GlobTest, AStarIsAnyText) {
  EXPECT_TRUE(MatchesGlob("a.*", "a.b.c"));
  EXPECT_TRUE(MatchesGlob("*._extra_state*", "x._extra_state/shard_0_2"));
  EXPECT_TRUE(MatchesGlob("*", ""));
  EXPECT_TRUE(MatchesGlob("a*b*c", "a__b_bc"));
  EXPECT_FALSE(MatchesGlob("a.*", "b.a.c"));
  EXPECT_FALSE(MatchesGlob("args", "args2"));
  EXPECT_FALSE(MatchesGlob("", "x"));
  EXPECT_TRUE(MatchesGlob("", ""));
}

TEST(GlobTest, AQuestionMarkIsOneByte) {
  EXPECT_TRUE(MatchesGlob("layers.?.w", "layers.7.w"));
  EXPECT_TRUE(MatchesGlob("a?c", "a/c"));
  EXPECT_FALSE(MatchesGlob("layers.?.w", "layers.17.w"));
  EXPECT_FALSE(MatchesGlob("?", ""));
}

TEST(GlobTest, BracketsAreOneByteOfAClass) {
  EXPECT_TRUE(MatchesGlob("layers.[0-3].*", "layers.2.w"));
  EXPECT_FALSE(MatchesGlob("layers.[0-3].*", "layers.4.w"));
  EXPECT_TRUE(MatchesGlob("*[qkv]_proj", "self_attn.k_proj"));
  EXPECT_FALSE(MatchesGlob("*[!qkv]_proj", "self_attn.k_proj"));
  EXPECT_TRUE(MatchesGlob("*[!qkv]_proj", "self_attn.o_proj"));
  EXPECT_FALSE(MatchesGlob("layers.[^0]*", "layers.0.w"));
  EXPECT_TRUE(MatchesGlob("layers.[^0]*", "layers.1.w"));
  EXPECT_TRUE(MatchesGlob("[]]", "]"));
  EXPECT_TRUE(MatchesGlob("[a-]", "-"));
  EXPECT_FALSE(MatchesGlob("[a-c]", "-"));
}

TEST(GlobTest, ABackslashAndAnOpenBracketTakeKeysAsTheyAre) {
  EXPECT_TRUE(MatchesGlob("state\\[0\\]", "state[0]"));
  EXPECT_FALSE(MatchesGlob("state[0]", "state[0]"));
  EXPECT_TRUE(MatchesGlob("state[0", "state[0"));
  EXPECT_TRUE(MatchesGlob("\\*", "*"));
  EXPECT_FALSE(MatchesGlob("\\*", "x"));
  EXPECT_TRUE(MatchesGlob("a\\", "a\\"));
}

TEST(GlobTest, ComesBackToTheLastStar) {
  EXPECT_TRUE(MatchesGlob("*[ab]?c", "xxabxbcc"));
  const std::string many(2000, 'a');
  std::string hard;
  for (int i = 0; i < 200; ++i) hard += "*a";
  EXPECT_FALSE(MatchesGlob(hard + "b", many));  // in far less than a second
}

}  // namespace
}  // namespace ckpt

#include "core/base/nearest_match.h"

#include <vector>

#include <gtest/gtest.h>

namespace ckpt {
namespace {

const std::vector<std::string> kVerbs = {"summary", "tensors", "show", "verify", "digest"};

TEST(NearestMatchTest, FindsOneEdit) { EXPECT_EQ(NearestMatch("sumary", kVerbs), "summary"); }

TEST(NearestMatchTest, CountsASwapAsOneEdit) { EXPECT_EQ(NearestMatch("hsow", kVerbs), "show"); }

TEST(NearestMatchTest, SaysNothingForADifferentWord) {
  EXPECT_EQ(NearestMatch("checkpoint", kVerbs), "");
}

TEST(NearestMatchTest, TakesTheEarlierOfTwo) {
  EXPECT_EQ(NearestMatch("--b", std::vector<std::string>{"--a", "--c"}), "--a");
}

}  // namespace
}  // namespace ckpt

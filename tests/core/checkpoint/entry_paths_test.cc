// Which paths a loader can make one nested object of.
#include "core/checkpoint/entry_paths.h"

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include <gtest/gtest.h>

namespace ckpt {
namespace {

EntryPath Steps(auto... steps) { return {PathStep(steps)...}; }

const std::string kA = "a";
const std::string kB = "b";
constexpr std::int64_t kFirst = 0;

TEST(EntryPathsTest, FitTogether) {
  EXPECT_TRUE(MakeOneObject({}));
  EXPECT_TRUE(MakeOneObject({{"a.b", Steps(kA, kB)}, {"a.a.0", Steps(kA, kA, kFirst)}}));
  // Text alone does not tell these apart.
  EXPECT_TRUE(MakeOneObject({{"['a.b']", Steps(kA + "." + kB)}, {"['a']['b']", Steps(kA, kB)}}));
  EXPECT_TRUE(MakeOneObject({{"a.0", Steps(kA, kFirst)}, {"a.7", Steps(kA, std::int64_t{7})}}));
}

TEST(EntryPathsTest, TellKeysThatAreNumbersFromTextsAndPositions) {
  const NumberKey one = {.number = 1};
  EXPECT_TRUE(MakeOneObject({{"a.[1]", Steps(kA, one)}, {"a.['1']", Steps(kA, std::string("1"))}}));
  EXPECT_TRUE(MakeOneObject({{"1.a", Steps(one, kA)}}));
  EXPECT_FALSE(MakeOneObject({{"x", Steps(kA, one)}, {"y", Steps(kA, one)}}));
  EXPECT_FALSE(MakeOneObject({{"x", Steps(kA, one)}, {"y", Steps(kA, std::int64_t{2})}}));
  EXPECT_EQ(WithTextKeys(Steps(one, kA, kFirst)), Steps(std::string("1"), kA, kFirst));
}

TEST(EntryPathsTest, TellConstantsFromTextsAndNumbers) {
  const std::string text = "None";
  EXPECT_TRUE(MakeOneObject({{"x", Steps(kA, ConstantKey::kNone)}, {"y", Steps(kA, text)}}));
  EXPECT_TRUE(MakeOneObject(
      {{"x", Steps(ConstantKey::kFalse)}, {"y", Steps(NumberKey{2})}, {"z", Steps(kA)}}));
  EXPECT_FALSE(MakeOneObject({{"x", Steps(ConstantKey::kTrue)}, {"y", Steps(ConstantKey::kTrue)}}));
  EXPECT_FALSE(MakeOneObject({{"x", Steps(kA, ConstantKey::kTrue)}, {"y", Steps(kA, kFirst)}}));
  const std::map<ConstantKey, std::string> texts = {
      {ConstantKey::kNone, "None"}, {ConstantKey::kFalse, "False"}, {ConstantKey::kTrue, "True"}};
  for (const auto& [key, str] : texts) {
    EXPECT_EQ(WithTextKeys(Steps(key, kA)), Steps(str, kA));
    EXPECT_EQ(JoinSteps(Steps(kA, key)), "a." + str);
    EXPECT_TRUE(StayApartAsTexts({{str + ".a", Steps(key, kA)}, {str + ".b", Steps(key, kB)}}));
    EXPECT_FALSE(StayApartAsTexts({{str + ".a", Steps(key, kA)}, {str + ".b", Steps(str, kB)}}));
  }
}

TEST(EntryPathsTest, StayApartWhereKeysAreTexts) {
  const NumberKey zero = {.number = 0};
  const std::string text = "0";
  EXPECT_EQ(JoinSteps(Steps(kA, zero, kFirst)), "a.0.0");
  EXPECT_TRUE(StayApartAsTexts({{"0.a", Steps(zero, kA)}, {"a.0", Steps(kA, kFirst)}}));
  // Two mappings would become one, though no entry is lost.
  EXPECT_FALSE(StayApartAsTexts({{"0.a", Steps(zero, kA)}, {"0.b", Steps(text, kB)}}));
  // Torch looks for "a.b" in both places.
  EXPECT_FALSE(StayApartAsTexts({{"['a.b']", Steps(kA + "." + kB)}, {"a.b", Steps(kA, kB)}}));
}

TEST(EntryPathsTest, TellAttributesFromKeys) {
  const AttributeName a = {.name = kA};
  EXPECT_TRUE(MakeOneObject({{"x", Steps(kA)}, {"y", Steps(a)}}));
  EXPECT_TRUE(MakeOneObject({{"x", Steps(kB, kA, kB)}, {"y", Steps(kB, a)}}));
  EXPECT_FALSE(MakeOneObject({{"x", Steps(kB, a)}, {"y", Steps(kB, a)}}));
  EXPECT_FALSE(MakeOneObject({{"x", Steps(kB, kFirst)}, {"y", Steps(kB, a)}}));
  EXPECT_EQ(WithTextKeys(Steps(kA, a)), Steps(kA, a));
}

TEST(EntryPathsTest, ShowWhatWouldBeLost) {
  EXPECT_FALSE(MakeOneObject({{"x", Steps(kA)}, {"y", Steps(kA)}}));
  EXPECT_FALSE(MakeOneObject({{"x", Steps(kA)}, {"y", Steps(kA, kB, kFirst)}, {"z", Steps(kB)}}));
  EXPECT_FALSE(MakeOneObject({{"x", Steps(kA, kB)}, {"y", Steps(kA, kFirst)}}));
  EXPECT_FALSE(MakeOneObject({{"x", Steps(kA, kB, kA)}, {"y", Steps(kA, kFirst, kA)}}));
}

// Of tensors, whose keys begin with 't', and objects.
std::set<EntryPath> LostLists(const EntryPaths& paths) {
  return ListsLostToTorch(paths, [](const std::string& key) { return key.starts_with('t'); });
}

constexpr std::int64_t kSecond = 1;

TEST(EntryPathsTest, ListsThatTorchTakesApartAreNotLost) {
  EXPECT_EQ(LostLists({}), std::set<EntryPath>());
  EXPECT_EQ(LostLists({{"x", Steps(kA, kB)}}), std::set<EntryPath>());
  // A tensor, a mapping, and both in a list within it.
  EXPECT_EQ(LostLists({{"t", Steps(kA, kFirst)}, {"x", Steps(kA, kSecond)}}),
            std::set<EntryPath>());
  EXPECT_EQ(LostLists({{"x", Steps(kA, kFirst, kB)}, {"y", Steps(kA, kSecond)}}),
            std::set<EntryPath>());
  EXPECT_EQ(LostLists({{"x", Steps(kA, kFirst)}, {"t", Steps(kA, kSecond, kFirst)}}),
            std::set<EntryPath>());
  EXPECT_EQ(LostLists({{"x", Steps(kA, kFirst, kFirst, kB)}}), std::set<EntryPath>());
}

TEST(EntryPathsTest, ListsWithGapsAreLost) {
  EXPECT_EQ(LostLists({{"t", Steps(kA, kSecond)}}), std::set{Steps(kA)});
  EXPECT_EQ(LostLists({{"t", Steps(kA, kFirst)}, {"t2", Steps(kA, std::int64_t{2})}}),
            std::set{Steps(kA)});
  // The list around it has none.
  EXPECT_EQ(LostLists({{"t", Steps(kA, kFirst, kSecond)}}), std::set{Steps(kA, kFirst)});
}

TEST(EntryPathsTest, ListsOfObjectsAloneAreLost) {
  EXPECT_EQ(LostLists({{"x", Steps(kA, kFirst)}, {"y", Steps(kA, kSecond)}}), std::set{Steps(kA)});
  // Torch would ask for the outer list, too, but the inner one becomes a mapping.
  EXPECT_EQ(LostLists({{"x", Steps(kA, kFirst, kFirst)}}), std::set{Steps(kA, kFirst)});
  EXPECT_EQ(LostLists({{"x", Steps(kA, kB, kFirst)}, {"t", Steps(kB, kFirst)}}),
            std::set{Steps(kA, kB)});
}

TEST(EntryPathsTest, PositionsBecomeKeysOfTheSameText) {
  EntryPaths paths = {{"a.0.1", Steps(kA, kFirst, kSecond)}, {"b.0", Steps(kB, kFirst)}};
  MakeMappings(LostLists(paths), paths);
  const std::string zero = "0";
  const std::string one = "1";
  EXPECT_EQ(paths, (EntryPaths{{"a.0.1", Steps(kA, kFirst, one)}, {"b.0", Steps(kB, zero)}}));
  EXPECT_TRUE(LostLists(paths).empty());
  for (const auto& [key, path] : paths) EXPECT_EQ(JoinSteps(path), key);
}

TEST(EntryPathsTest, BeginWithAKey) {
  EXPECT_FALSE(MakeOneObject({{"x", EntryPath()}}));
  EXPECT_FALSE(MakeOneObject({{"x", Steps(kFirst)}}));
}

TEST(EntryPathsTest, HaveNoPositionThatNoListHas) {
  EXPECT_FALSE(MakeOneObject({{"x", Steps(kA, std::int64_t{-1})}}));
  EXPECT_FALSE(MakeOneObject({{"x", Steps(kA, std::int64_t{1} << 40)}}));
}

}  // namespace
}  // namespace ckpt

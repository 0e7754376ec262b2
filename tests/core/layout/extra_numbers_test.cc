// Numbers of an axis behind those that every model has: what they are called, and models without.
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/layout/compose.h"
#include "core/layout/match.h"
#include "core/layout/numbered_axes.h"
#include "core/layout/resolve.h"
#include "tests/testing/matchers.h"

namespace ckpt::layout {
namespace {

using ::testing::ElementsAre;
using testing::FailsWith;
using ::testing::IsEmpty;
using testing::IsOk;
using ::testing::IsSupersetOf;
using ::testing::Not;

constexpr const char* kExtraTable = R"(
family f
dim l = layers + (more ?? 0)
dim a = 2
dim b = 3
extra l from layers counted by more
logical all   [l a]
logical first [l b] when l < layers
logical last  [l b] when l >= layers
logical share [a]
naming hub
  share          : a = share
  x.<l>.all      : a = all
  x.<l>.first    : b = first
  x.<l>.last     : b = last
  x.<l>.share    : a = share derived when l >= layers
naming live
  choice keys stacked | apart
  choice inner new | old
  extra x.<l>. = more.<l>.new. when inner == "new"
  extra x.<l>. = more.<l>.old. when inner == "old"
  share          : a = share
  stack l when keys == "stacked"
    x.<l>.all    : a = all
    x.<l>.first  : b = first
    object x.<l>.state : = all
  end
  more.<l>.last  : b = last
naming short
  without extra
  share          : a = share
  x.<l>.all      : a = all
  x.<l>.first    : b = first
  x.<l>.last     : b = last
)";

class ExtraNumbersTest : public ::testing::Test {
 protected:
  ExtraNumbersTest() : table_(ParseLayoutTable(kExtraTable, "table").value()) {}

  [[nodiscard]] ResolvedLayout Layout(std::string_view naming, const Choices& choices = {}) const {
    return ResolveExactly(table_, naming, config_, choices).value();
  }
  static std::vector<std::string> Names(const ResolvedLayout& layout) {
    std::vector<std::string> names;
    for (const ResolvedTensor& tensor : layout.tensors) names.push_back(tensor.name);
    return names;
  }
  static std::vector<GlobalTensor> Tensors(const ResolvedLayout& layout) {
    std::vector<GlobalTensor> tensors;
    for (const ResolvedTensor& tensor : layout.tensors) {
      tensors.push_back({tensor.name, DType::kBfloat16, tensor.shape, 0, 0});
    }
    return tensors;
  }

  LayoutTable table_;
  Configuration config_ = {{"layers", 2}, {"more", 2}};
};

TEST_F(ExtraNumbersTest, AreNamedAsAllOthersUnlessANamingSaysHow) {
  EXPECT_THAT(Names(Layout("hub")),
              ElementsAre("share", "x.0.all", "x.0.first", "x.1.all", "x.1.first", "x.2.all",
                          "x.2.last", "x.2.share", "x.3.all", "x.3.last", "x.3.share"));
}

TEST_F(ExtraNumbersTest, CountFromZeroUnderNamesOfTheirOwn) {
  EXPECT_THAT(Names(Layout("live", {{"keys", "apart"}})),
              ElementsAre("share", "x.0.all", "x.0.first", "x.1.all", "x.1.first", "more.0.new.all",
                          "more.0.last", "more.1.new.all", "more.1.last"));
  EXPECT_THAT(Names(Layout("live", {{"keys", "apart"}, {"inner", "old"}})),
              IsSupersetOf({"more.0.old.all", "more.1.old.all", "more.1.last"}));
}

TEST_F(ExtraNumbersTest, AreNeverStacked) {
  const ResolvedLayout stacked = Layout("live", {{"keys", "stacked"}});
  EXPECT_THAT(Names(stacked), ElementsAre("share", "x.all", "x.first", "more.0.new.all",
                                          "more.0.last", "more.1.new.all", "more.1.last"));
  EXPECT_EQ(stacked.tensors[1].shape, (Dims{2, 2}));
  EXPECT_EQ(stacked.tensors[2].shape, (Dims{2, 3}));
  std::map<std::string, Dims> objects;
  for (const ResolvedObject& object : stacked.objects) objects[object.name] = object.grid;
  EXPECT_EQ(objects, (std::map<std::string, Dims>{
                         {"x.state", {2}}, {"more.0.new.state", {}}, {"more.1.new.state", {}}}));
}

// Composing proves that each element of the target is written once.
TEST_F(ExtraNumbersTest, EveryNamingThatHasThemGivesEveryOther) {
  const std::vector<ResolvedLayout> layouts = {Layout("hub"), Layout("live", {{"keys", "stacked"}}),
                                               Layout("live", {{"keys", "apart"}})};
  for (const ResolvedLayout& source : layouts) {
    for (const ResolvedLayout& target : layouts) {
      EXPECT_THAT(Compose(source, target), IsOk());
    }
    EXPECT_THAT(Compose(source, Layout("short")), IsOk());
    EXPECT_THAT(Compose(Layout("short"), source), FailsWith(ErrorKind::kCoverage));
  }
}

TEST_F(ExtraNumbersTest, AreLeftOutByANamingWithoutThem) {
  EXPECT_THAT(Names(Layout("short")),
              ElementsAre("share", "x.0.all", "x.0.first", "x.1.all", "x.1.first"));
}

TEST_F(ExtraNumbersTest, ACheckpointMayHaveNone) {
  config_["more"] = 0;
  for (const char* naming : {"hub", "live", "short"}) {
    SCOPED_TRACE(naming);
    const std::vector<GlobalTensor> tensors = Tensors(Layout(naming));
    const auto match = MatchSource(table_, naming, {{"layers", 2}, {"more", 2}}, tensors);
    ASSERT_THAT(match, IsOk());
    EXPECT_THAT(match->problems, IsEmpty());
    EXPECT_TRUE(match->lacks_extra);
    const auto none = MatchSource(table_, naming, config_, tensors);
    ASSERT_THAT(none, IsOk());
    EXPECT_FALSE(none->lacks_extra);
  }
}

TEST_F(ExtraNumbersTest, ACheckpointWithSomeLacksTheRest) {
  std::vector<GlobalTensor> tensors = Tensors(Layout("hub"));
  std::erase_if(tensors, [](const GlobalTensor& tensor) { return tensor.key == "x.3.all"; });
  const auto match = MatchSource(table_, "hub", config_, tensors);
  ASSERT_THAT(match, IsOk());
  EXPECT_FALSE(match->lacks_extra);
  ASSERT_EQ(match->problems.size(), 1U);
  EXPECT_EQ(match->problems[0].kind, ErrorKind::kMissing);
  EXPECT_EQ(match->problems[0].tensor, "x.3.all");
}

TEST_F(ExtraNumbersTest, CopiesOfTheirsMayBeAbsent) {
  std::vector<GlobalTensor> tensors = Tensors(Layout("hub"));
  std::erase_if(tensors, [](const GlobalTensor& tensor) { return tensor.key == "x.3.share"; });
  const auto match = MatchSource(table_, "hub", config_, tensors);
  ASSERT_THAT(match, IsOk());
  EXPECT_THAT(match->problems, IsEmpty());
  EXPECT_EQ(match->derived_present.size(), 1U);
}

TEST_F(ExtraNumbersTest, BeginWithinTheAxis) {
  config_["more"] = -1;
  EXPECT_THAT(Resolve(table_, "hub", config_), FailsWith(ErrorKind::kBadMetadata));
  config_["more"] = "two";
  EXPECT_THAT(Resolve(table_, "hub", config_), Not(IsOk()));
}

TEST_F(ExtraNumbersTest, AxesInNamesAreFoundWithWhatSaysThem) {
  const std::vector<NumberedAxis> axes =
      NumberedAxes(table_, {{"layers", Value(70000)}, {"more", Value(3)}});
  ASSERT_EQ(axes.size(), 1U);
  EXPECT_EQ(axes[0].axis, "l");
  EXPECT_EQ(axes[0].extent, 70003);
  EXPECT_THAT(axes[0].keys, ElementsAre("layers", "more"));
  EXPECT_THAT(NumberedAxes(table_, {{"more", Value(3)}}), IsEmpty());
}

}  // namespace
}  // namespace ckpt::layout

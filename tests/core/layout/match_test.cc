#include "core/layout/match.h"

#include <gtest/gtest.h>

#include "tests/testing/matchers.h"

namespace ckpt::layout {
namespace {

using testing::FailsWith;
using testing::IsOk;

constexpr std::string_view kMatchTable = R"(
family test
dim l = layers
dim a = 2
dim b = 3
logical x [l a]
logical y [l b]
logical e [b]
naming src
  prefix "" | model. | deep.model.
  choice style split | fused
  ignore *.junk "left behind"
  bookkeeping step "progress"
  e : b = e
  tied : b = e derived
  if style == "split"
    <l>.x : a = x
    <l>.y : b = y
  end
  <l>.xy : {x: a | y: b} when style == "fused"
naming dst
  e : b = e
  <l>.xy : {x: a | y: b}
)";

GlobalTensor Tensor(std::string key, Dims shape, DType dtype = DType::kBfloat16) {
  return {std::move(key), dtype, std::move(shape), 0, 0};
}

class MatchTest : public ::testing::Test {
 protected:
  MatchTest() : table_(ParseLayoutTable(kMatchTable, "table").value()) {}
  Result<SourceMatch> Match(const std::vector<GlobalTensor>& tensors) const {
    return MatchSource(table_, "src", {{"layers", 2}}, tensors);
  }
  LayoutTable table_;
};

TEST_F(MatchTest, FindsThePrefixAndTheForm) {
  const auto match =
      Match({Tensor("deep.model.e", {3}), Tensor("deep.model.0.xy", {5}),
             Tensor("deep.model.1.xy", {5}), Tensor("some.junk", {9}), Tensor("step", {1})});
  ASSERT_THAT(match, IsOk());
  EXPECT_TRUE(match->problems.empty());
  EXPECT_EQ(match->layout.prefix, "deep.model.");
  EXPECT_EQ(match->layout.choices.at("style"), "fused");
  ASSERT_EQ(match->ignored.size(), 2U);
  EXPECT_EQ(match->ignored[0].position, 3U);
  EXPECT_EQ(match->ignored[0].reason, "left behind");
  EXPECT_FALSE(match->ignored[0].is_bookkeeping);
  EXPECT_TRUE(match->ignored[1].is_bookkeeping);
  EXPECT_TRUE(match->derived_present.empty());
}

TEST_F(MatchTest, ReportsEveryProblemAtOnce) {
  const auto match = Match({Tensor("e", {3}), Tensor("tied", {3}), Tensor("0.x", {2}),
                            Tensor("0.y", {4}), Tensor("1.x", {2}), Tensor("extra", {1})});
  ASSERT_THAT(match, IsOk());
  std::vector<std::pair<ErrorKind, std::string>> found;
  for (const Problem& problem : match->problems) found.emplace_back(problem.kind, problem.tensor);
  EXPECT_EQ(found,
            (std::vector<std::pair<ErrorKind, std::string>>{{ErrorKind::kShapeMismatch, "0.y"},
                                                            {ErrorKind::kMissing, "1.y"},
                                                            {ErrorKind::kUnmapped, "extra"}}));
  EXPECT_EQ(match->problems[0].expected, "[3]");
  EXPECT_EQ(match->problems[0].actual, "[4]");
  ASSERT_EQ(match->derived_present.size(), 1U);
  EXPECT_EQ(match->layout.tensors[match->derived_present[0]].name, "tied");
}

TEST_F(MatchTest, RefusesToFuseDifferentDtypes) {
  const std::vector<GlobalTensor> tensors = {Tensor("e", {3}, DType::kFloat32), Tensor("0.x", {2}),
                                             Tensor("0.y", {3}), Tensor("1.x", {2}),
                                             Tensor("1.y", {3}, DType::kFloat32)};
  const auto match = Match(tensors);
  ASSERT_THAT(match, IsOk());
  const auto target = Resolve(table_, "dst", {{"layers", 2}});
  ASSERT_THAT(target, IsOk());
  const auto composition = Compose(match->layout, *target);
  ASSERT_THAT(composition, IsOk());
  const TargetDtypes dtypes = InheritDtypes(*composition, *target, *match, tensors);
  EXPECT_EQ(dtypes.dtypes,
            (std::vector<DType>{DType::kFloat32, DType::kBfloat16, DType::kFloat32}));
  EXPECT_TRUE(dtypes.problems.empty());
  ASSERT_EQ(dtypes.mixed.size(), 1U);
  EXPECT_EQ(dtypes.mixed[0].kind, ErrorKind::kDtypeMismatch);
  EXPECT_EQ(dtypes.mixed[0].tensor, "1.xy");
}

TEST(Match, AFormMayLackWhatNamesBeginWith) {
  const LayoutTable table = ParseLayoutTable(R"(
family test
dim a = 2
logical x [a]
logical head [a]
naming src
  choice body whole | base
  strip model. "a base model" when body == "base"
  model.x : a = x
  head : a = head
)",
                                             "table")
                                .value();
  const auto whole =
      MatchSource(table, "src", {}, std::vector{Tensor("model.x", {2}), Tensor("head", {2})});
  ASSERT_THAT(whole, IsOk());
  EXPECT_EQ(whole->layout.choices.at("body"), "whole");
  EXPECT_EQ(whole->layout.form, "");
  const auto base = MatchSource(table, "src", {}, std::vector{Tensor("x", {2})});
  ASSERT_THAT(base, IsOk());
  EXPECT_EQ(base->layout.choices.at("body"), "base");
  ASSERT_EQ(base->problems.size(), 1U);
  EXPECT_EQ(base->problems[0].tensor, "head");
  EXPECT_EQ(base->problems[0].hint, "a base model");
}

// What has no element in any logical tensor is a tensor nevertheless, where a file has it.
TEST(Match, TensorsWithoutElementsComeAndGo) {
  const LayoutTable table = ParseLayoutTable(R"(
family test
dim a = 2
dim no = 0 min 0
logical x [a]
naming src
  x : a = x
  empty : {zero: no} a when has_empty
naming dst
  x : a = x
)",
                                             "table")
                                .value();
  const std::vector<GlobalTensor> tensors = {Tensor("x", {2}), Tensor("empty", {0, 2})};
  const auto match = MatchSource(table, "src", {{"has_empty", true}}, tensors);
  ASSERT_THAT(match, IsOk());
  EXPECT_TRUE(match->problems.empty());
  EXPECT_EQ(Resolve(table, "src", {{"has_empty", false}})->tensors.size(), 1U);

  const std::vector<GlobalTensor> stored = {Tensor("x", {2})};
  const auto back = MatchSource(table, "dst", {{"has_empty", true}}, stored);
  ASSERT_THAT(back, IsOk());
  const auto target = Resolve(table, "src", {{"has_empty", true}});
  ASSERT_THAT(target, IsOk());
  const auto composition = Compose(back->layout, *target);
  ASSERT_THAT(composition, IsOk());
  EXPECT_EQ(InheritDtypes(*composition, *target, *back, stored).dtypes,
            (std::vector<DType>{DType::kBfloat16, DType::kBfloat16}));
}

// Two forms of the same names.
TEST(Match, ShapesDecideWhereNamesDoNot) {
  const auto table = ParseLayoutTable(R"(
family test
dim v = tokens
dim p = rows - tokens
logical x [v]
naming src
  choice form exact | padded
  w : v = x when form == "exact"
  w : {x: v | zero: p} when form == "padded"
)",
                                      "table");
  ASSERT_THAT(table, IsOk());
  const Configuration config = {{"tokens", 3}, {"rows", 4}};
  for (const auto& [stored, form] :
       {std::pair{3, "exact"}, std::pair{4, "padded"}, std::pair{5, "exact"}}) {
    const auto match = MatchSource(*table, "src", config, std::vector{Tensor("w", {stored})});
    ASSERT_THAT(match, IsOk());
    EXPECT_EQ(match->layout.choices.at("form"), form) << stored;
    EXPECT_EQ(match->problems.empty(), stored != 5);
  }
}

TEST_F(MatchTest, RefusesUnknownNamingsAndChoices) {
  EXPECT_THAT(MatchSource(table_, "nosuch", {{"layers", 2}}, {}), FailsWith(ErrorKind::kUsage));
  EXPECT_THAT(Resolve(table_, "src", {{"layers", 2}}, {{"style", "odd"}}),
              FailsWith(ErrorKind::kUsage));
  EXPECT_THAT(Resolve(table_, "src", {{"layers", 2}}, {{"nosuch", "fused"}}),
              FailsWith(ErrorKind::kUsage));
}

}  // namespace
}  // namespace ckpt::layout

#include "core/plan/plan_recipes.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "core/layout/affine.h"
#include "core/layout/cover.h"
#include "tests/core/layout/apply_nest.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using ::testing::ElementsAre;
using testing::FailsWith;
using testing::IsOk;

TargetTensor Tensor(std::string key, Dims shape) {
  return {.key = std::move(key), .dtype = DType::kFloat32, .shape = std::move(shape)};
}

// Of source `source`, whose elements count from 0 in C order, what arrives where; -1: zeros.
std::vector<std::int64_t> Apply(const TensorRecipe& recipe, std::int64_t elems,
                                const std::vector<Dims>& sources) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(elems), -2);
  for (const layout::Nest& nest : recipe.nests) {
    testing::ForEachElement(nest, [&](const Dims& to, const Dims& from) {
      const auto value = nest.is_zero_fill()
                             ? -1
                             : 100 * nest.source + static_cast<std::int64_t>(testing::LinearIndex(
                                                       from, sources[nest.source]));
      out[static_cast<std::size_t>(to.at(0))] = static_cast<std::int64_t>(value);
    });
  }
  return out;
}

TEST(RecipesOfPlanTest, FollowTheOrderOfTheWriter) {
  const std::vector<TargetTensor> tensors = {Tensor("a", {2}), Tensor("b", {3})};
  const std::vector<TensorRecipe> recipes = {{.nests = {layout::IdentityNest(7, Dims{2})}},
                                             {.nests = {layout::IdentityNest(8, Dims{3})}}};
  WritePlan plan;
  plan.tensors = {tensors[1], tensors[0]};
  const auto of_plan = RecipesOfPlan(plan, tensors, recipes);
  ASSERT_THAT(of_plan, IsOk());
  EXPECT_EQ(of_plan->at(0).nests, recipes[1].nests);
  EXPECT_EQ(of_plan->at(1).nests, recipes[0].nests);
}

// Columns 1 and 2 of two rows, and a whole tensor that has its own rows from two sources.
TEST(RecipesOfPlanTest, PackBoxesInARowWithZerosBetweenThem) {
  const std::vector<Dims> sources = {{2, 4}, {2}, {2}};
  const std::vector<TargetTensor> tensors = {Tensor("a", {2, 4}), Tensor("b", {4})};
  layout::Nest even = {1, {0}, {0}, {{2, 0, 2, 0, 1}}};
  layout::Nest odd = {2, {1}, {0}, {{2, 0, 2, 0, 1}}};
  const std::vector<TensorRecipe> recipes = {{.nests = {layout::IdentityNest(0, Dims{2, 4})}},
                                             {.nests = {even, odd}}};
  WritePlan plan;
  plan.tensors = {Tensor("packed", {12})};
  plan.packed["packed"] = {
      {.tensor = "b", .box = WholeBox(Dims{4}), .first_elem = 6},
      {.tensor = "a", .box = {.offsets = {0, 1}, .sizes = {2, 2}}, .first_elem = 1}};
  const auto of_plan = RecipesOfPlan(plan, tensors, recipes);
  ASSERT_THAT(of_plan, IsOk());
  EXPECT_THAT(Apply(of_plan->at(0), 12, sources),
              ElementsAre(-1, 1, 2, 5, 6, -1, 100, 200, 101, 201, -1, -1));
  EXPECT_THAT(layout::ProveExactCover(Dims{12}, of_plan->at(0).nests), IsOk());
}

TEST(RecipesOfPlanTest, RefusePartsOfSeveralDtypes) {
  const std::vector<TargetTensor> tensors = {Tensor("a", {2}), Tensor("b", {2})};
  const std::vector<TensorRecipe> recipes = {
      {.nests = {layout::IdentityNest(0, Dims{2})}},
      {.nests = {layout::IdentityNest(1, Dims{2})}, .source_dtype = DType::kBfloat16}};
  WritePlan plan;
  plan.tensors = {Tensor("packed", {4})};
  plan.packed["packed"] = {{.tensor = "a", .box = WholeBox(Dims{2}), .first_elem = 0},
                           {.tensor = "b", .box = WholeBox(Dims{2}), .first_elem = 2}};
  EXPECT_THAT(RecipesOfPlan(plan, tensors, recipes), FailsWith(ErrorKind::kDtypeMismatch));
}

}  // namespace
}  // namespace ckpt

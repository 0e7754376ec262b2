#include "trainer/optim/param_groups.h"

#include <gmock/gmock.h>

namespace ckpt::trainer {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

ParamSpec Param(const char* name, Dims shape, ParamClass param_class = ParamClass::kDense) {
  ParamSpec param;
  param.name = name;
  param.shape = std::move(shape);
  param.param_class = param_class;
  return param;
}

TEST(ParamGroupsTest, DecayIsForMatricesThatAreNoBiases) {
  EXPECT_TRUE(Decays(Param("mlp.linear_fc1.weight", {8, 4})));
  EXPECT_FALSE(Decays(Param("input_layernorm.weight", {4})));
  EXPECT_FALSE(Decays(Param("mlp.linear_fc1.bias", {8, 1})));
  EXPECT_FALSE(Decays(Param("scale", {})));
}

TEST(ParamGroupsTest, DenseBeforeExpertAndDecayBeforeNone) {
  std::vector<ParamSpec> params = {
      Param("norm.weight", {4}),    Param("experts.weight0", {8, 4}, ParamClass::kExpert),
      Param("qkv.weight", {8, 4}),  Param("experts.bias0", {8}, ParamClass::kExpert),
      Param("proj.weight", {4, 8}), Param("frozen.weight", {4, 8}),
  };
  params.back().trainable = false;
  const std::vector<ParamGroup> groups = GroupParams(params);
  ASSERT_EQ(groups.size(), 4U);
  EXPECT_THAT(groups[0].indices, ElementsAre(2, 4));
  EXPECT_THAT(groups[1].indices, ElementsAre(0));
  EXPECT_THAT(groups[2].indices, ElementsAre(1));
  EXPECT_THAT(groups[3].indices, ElementsAre(3));
  for (std::size_t g = 0; g < groups.size(); ++g) {
    EXPECT_EQ(groups[g].wd_mult, g % 2 == 0 ? 1 : 0);
    EXPECT_EQ(groups[g].lr_mult, 1);
    EXPECT_EQ(groups[g].is_expert_parallel, g >= 2);
  }
}

TEST(ParamGroupsTest, NoGroupIsEmpty) {
  EXPECT_THAT(GroupParams({}), IsEmpty());
  EXPECT_EQ(GroupParams(std::vector<ParamSpec>{Param("norm.weight", {4})}).size(), 1U);
}

}  // namespace
}  // namespace ckpt::trainer

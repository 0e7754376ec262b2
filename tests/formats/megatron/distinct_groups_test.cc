#include "formats/megatron/distinct_groups.h"

#include <functional>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ckpt::megatron {
namespace {

using ::testing::ElementsAre;

TEST(DistinctGroupsTest, KeepTheOrderInWhichTheyCame) {
  DistinctGroups distinct;
  const ParamGroup decays = {.weight_decay = 0.1};
  const ParamGroup rests = {.weight_decay = 0};
  EXPECT_EQ(distinct.Add(decays), 0U);
  EXPECT_EQ(distinct.Add(rests), 1U);
  EXPECT_EQ(distinct.Add(decays), 0U);
  EXPECT_THAT(distinct.groups(), ElementsAre(decays, rests));
}

TEST(DistinctGroupsTest, AnySettingTellsThemApart) {
  const std::vector<std::function<void(ParamGroup&)>> changes = {
      [](ParamGroup& group) { group.is_expert_parallel = true; },
      [](ParamGroup& group) { group.wd_mult = 2; },
      [](ParamGroup& group) { group.lr_mult = 2; },
      [](ParamGroup& group) { group.max_lr = 2; },
      [](ParamGroup& group) { group.min_lr = 2; },
      [](ParamGroup& group) { group.lr = 2; },
      [](ParamGroup& group) { group.betas[1] = 0.5; },
      [](ParamGroup& group) { group.eps = 2; },
      [](ParamGroup& group) { group.sgd.emplace(); },
      [](ParamGroup& group) { group.sgd = {.nesterov = true}; },
      [](ParamGroup& group) { group.weight_decay = 2; },
      [](ParamGroup& group) { group.step = 2; },
      [](ParamGroup& group) { group.is_decoupled_lr = true; },
      [](ParamGroup& group) { group.default_config = false; },
      [](ParamGroup& group) {
        group.others = {{"lr_scale", 0.5}};
      },
      [](ParamGroup& group) {
        group.others = {{"lr_scale", layout::Value::List{0.5, "a"}}};
      },
      [](ParamGroup& group) {
        group.others = {{"name", "a"}};
      },
  };
  DistinctGroups distinct;
  distinct.Add({});
  for (std::size_t c = 0; c < changes.size(); ++c) {
    ParamGroup group;
    changes[c](group);
    EXPECT_EQ(distinct.Add(group), c + 1);
    EXPECT_EQ(distinct.Add(group), c + 1);
  }
}

TEST(DistinctGroupsTest, TheSignOfZeroDoesNotTellThemApart) {
  DistinctGroups distinct;
  distinct.Add({.lr = 0.0, .others = {{"a", layout::Value::List{0.0}}}});
  EXPECT_EQ(distinct.Add({.lr = -0.0, .others = {{"a", layout::Value::List{-0.0}}}}), 0U);
}

TEST(DistinctGroupsTest, SettingsThatAreNotNumbersEqualNone) {
  DistinctGroups distinct;
  const ParamGroup group = {.lr = std::numeric_limits<double>::quiet_NaN()};
  EXPECT_EQ(distinct.Add(group), 0U);
  EXPECT_EQ(distinct.Add(group), 1U);
}

}  // namespace
}  // namespace ckpt::megatron

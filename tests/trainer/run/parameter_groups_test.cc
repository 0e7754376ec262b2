// What the parameter groups of a stored run say is done, or refused by name.
#include <algorithm>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "converters/verbs/training_state.h"
#include "core/io/memory_storage.h"
#include "tests/testing/matchers.h"
#include "tests/trainer/run/saved_state.h"
#include "tests/trainer/run/small_session.h"
#include "trainer/run/internal/stored_settings.h"

namespace ckpt::train {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::With;

// In fsdp2 and fsdp_dtensor groups name their parameters, in torch_dist they do not.
class ParameterGroupsTest : public ::testing::TestWithParam<const char*> {
 protected:
  TrainingState Saved(const layout::Configuration& more = {}) {
    return testing::SavedState(*storage_, With({{"save_format", GetParam()}}, more));
  }
  Status Load(const TrainingState& state, const layout::Configuration& settings = {}) {
    return testing::LoadInto(*storage_, state, settings);
  }

  std::unique_ptr<Storage> storage_ = MakeMemoryStorage();
};

TEST_P(ParameterGroupsTest, AreThoseOfTheTrainerItself) {
  const TrainingState state = Saved();
  EXPECT_EQ(state.run.groups.size(), 2U);
  EXPECT_THAT(Load(state), IsOk());
  // What is asked for instead is asked for.
  EXPECT_THAT(Load(state, {{"lr", 0.5}, {"weight_decay", 0.25}}), IsOk());
}

TEST_P(ParameterGroupsTest, WithARateOfTheirOwnAreRefusedByName) {
  TrainingState state = Saved();
  state.run.groups[1].max_lr = 0.25;
  state.run.groups[1].is_decoupled_lr = true;
  state.run.groups[1].lr_mult = 2;
  const Status refused = Load(state);
  ASSERT_THAT(refused, FailsWith(ErrorKind::kUnsupported));
  ASSERT_EQ(refused.problems().size(), 2U);
  const Problem& rate = refused.problems()[0];
  EXPECT_THAT(rate.message, HasSubstr("parameter group 1 of 2 says of max_lr"));
  EXPECT_THAT(rate.file, HasSubstr("/runs/a/iter_0000002"));
  EXPECT_EQ(rate.expected, "max_lr=0.001");
  EXPECT_EQ(rate.actual, "max_lr=0.25");
  EXPECT_THAT(rate.hint, HasSubstr("finetune=true"));
  EXPECT_EQ(refused.problems()[1].actual, "lr_mult=2");
}

TEST_P(ParameterGroupsTest, OfAnotherProgramAreRefusedByWhatTheyChange) {
  TrainingState state = Saved();
  state.run.groups[1].others = {{"fused", true}, {"name", "spared"}, {"max_momentum", 0.95}};
  EXPECT_THAT(Load(state), IsOk());
  state.run.groups[1].others.emplace_back("start_wd", 0.3);
  const Status refused = Load(state);
  ASSERT_THAT(refused, FailsWith(ErrorKind::kUnsupported));
  EXPECT_EQ(refused.first().actual, "start_wd=0.3");
}

TEST_P(ParameterGroupsTest, OfAnotherOptimizerAreRefused) {
  TrainingState state = Saved({{"optimizer", "sgd"}, {"sgd_momentum", 0.75}});
  ASSERT_TRUE(state.run.uses_sgd());
  EXPECT_EQ(state.run.groups[1].sgd, SgdSettings{.momentum = 0.75});
  EXPECT_THAT(Load(state, {{"optimizer", "sgd"}}), IsOk());
  state.moments.clear();  // as of SGD without momentum
  EXPECT_THAT(Load(state), FailsWith(ErrorKind::kUnsupported));
  state.run.groups[0].sgd->nesterov = true;
  const Status refused = Load(state, {{"optimizer", "sgd"}});
  EXPECT_THAT(refused, FailsWith(ErrorKind::kUnsupported));
  EXPECT_THAT(refused.ToString(), HasSubstr("nesterov=1"));
}

TEST_P(ParameterGroupsTest, WithOtherDecaysAreRefusedByName) {
  TrainingState state = Saved();
  const auto spared = std::ranges::find(state.run.groups, 0, &ParamGroup::wd_mult);
  ASSERT_NE(spared, state.run.groups.end());
  spared->wd_mult = 0.5;
  spared->weight_decay = 0.005;
  const Status refused = Load(state);
  ASSERT_THAT(refused, FailsWith(ErrorKind::kUnsupported));
  EXPECT_THAT(refused.ToString(), HasSubstr("wd_mult=0.5"));
  EXPECT_THAT(refused.ToString(), HasSubstr("weight_decay=0.005"));
}

TEST_P(ParameterGroupsTest, ThatSpareWhatTheTrainerDoesNotAreRefusedByName) {
  TrainingState state = Saved();
  if (state.run.group_of.empty()) return;  // nothing says what is spared
  std::string moved;
  for (auto& [name, group] : state.run.group_of) {
    if (name.find("embed") == std::string::npos) continue;
    moved = name;
    group = state.run.groups[0].wd_mult == 0 ? 0 : 1;
  }
  ASSERT_NE(moved, "");
  const Status refused = Load(state);
  ASSERT_THAT(refused, FailsWith(ErrorKind::kUnsupported));
  ASSERT_EQ(refused.problems().size(), 1U);
  EXPECT_THAT(refused.problems()[0].tensor, HasSubstr("embed"));
  EXPECT_EQ(refused.problems()[0].actual, "no weight decay");
  state.moments.clear();  // an optimizer that keeps nothing has groups, too
  EXPECT_THAT(Load(state), FailsWith(ErrorKind::kUnsupported));
}

// As in Megatron, whose groups keep their rates where its scheduler is told another one.
TEST_P(ParameterGroupsTest, SayTheRateWhateverTheArgumentsSay) {
  TrainingState state = Saved();
  for (ParamGroup& group : state.run.groups) group.max_lr = 0.25, group.min_lr = 0.125;
  const auto stored = StoredSettings(state, /*finetune=*/false);
  ASSERT_THAT(stored, IsOk());
  EXPECT_EQ(stored->at("lr"), layout::Value(0.25));
  EXPECT_EQ(stored->at("min_lr"), layout::Value(0.125));
}

// torch_dist does not say in which group they are: its reader finds it by the arguments.
TEST_P(ParameterGroupsTest, NormsOfQueriesAndKeysDecayIfTheArgumentsSaySo) {
  const layout::Configuration norms = {{"qk_layernorm", true}};
  const layout::Configuration decayed = With(norms, {{"apply_wd_to_qk_layernorm", true}});
  const TrainingState state = Saved(decayed);
  const auto stored = StoredSettings(state, /*finetune=*/false);
  ASSERT_THAT(stored, IsOk());
  EXPECT_EQ(stored->at("apply_wd_to_qk_layernorm"), layout::Value(true));
  EXPECT_THAT(Load(state, decayed), IsOk());
  const Status refused = Load(state, norms);
  ASSERT_THAT(refused, FailsWith(ErrorKind::kUnsupported));
  EXPECT_THAT(refused.problems()[0].tensor, HasSubstr("_layernorm."));
  EXPECT_EQ(refused.problems()[0].expected, "no weight decay");
  EXPECT_EQ(refused.problems()[0].actual, "weight decay");
  // And nothing about them in a run where they do not.
  EXPECT_THAT(Load(Saved(norms), decayed), FailsWith(ErrorKind::kUnsupported));
}

TEST_P(ParameterGroupsTest, WithoutAnyThatIsSparedAreAllDecayed) {
  const TrainingState state = Saved({{"decay_all", true}});
  EXPECT_EQ(state.run.groups.size(), 1U);
  const auto stored = StoredSettings(state, /*finetune=*/false);
  ASSERT_THAT(stored, IsOk());
  EXPECT_EQ(stored->at("decay_all"), layout::Value(true));
  EXPECT_THAT(Load(state, {{"decay_all", true}}), IsOk());
  const Status refused = Load(state);
  ASSERT_THAT(refused, FailsWith(ErrorKind::kUnsupported));
  EXPECT_THAT(refused.ToString(), HasSubstr("--set decay_all=true"));

  // A run of another program says so by its groups alone.
  TrainingState theirs = state;
  theirs.args.erase("ckptkit_decay_all");
  const auto settings = StoredSettings(theirs, /*finetune=*/false);
  ASSERT_THAT(settings, IsOk());
  EXPECT_EQ(settings->at("decay_all"), layout::Value(true));
}

INSTANTIATE_TEST_SUITE_P(Formats, ParameterGroupsTest,
                         ::testing::Values("fsdp_dtensor", "torch_dist", "fsdp2", "hdf5"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace ckpt::train

// Which parameters belong to which group of the optimizer, where a format does not store it.
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "converters/verbs/internal/convert_run.h"
#include "converters/verbs/optimizer_groups.h"
#include "converters/verbs/training_state.h"
#include "tests/converters/verbs/convert_fixture.h"

namespace ckpt {
namespace {

using ::testing::AllOf;
using testing::ConvertTest;
using testing::FailsWith;
using testing::GoldenDir;
using ::testing::HasSubstr;
using testing::IsOk;

class GroupMembersTest : public ConvertTest {
 protected:
  // A run of Megatron-FSDP, whose groups are those that Megatron makes: all parameters decay but
  // vectors.
  static TrainingState State(const char* golden = "dense_fsdp2") {
    auto opened = OpenCheckpoint(PosixStorage(), GoldenDir() / "fsdp_dtensor" / golden / "ckpt");
    EXPECT_THAT(opened, IsOk());
    auto state = UnderstandTrainingState(
        PosixStorage(), std::make_shared<const OpenedCheckpoint>(std::move(opened).value()), {},
        RunDetail::kWhole);
    EXPECT_THAT(state, IsOk());
    return std::move(state).value();
  }

  static std::size_t GroupWhere(const TrainingState& state,
                                const std::function<bool(const ParamGroup&)>& is_it) {
    const auto found = std::ranges::find_if(state.run.groups, is_it);
    EXPECT_NE(found, state.run.groups.end());
    return static_cast<std::size_t>(found - state.run.groups.begin());
  }

  static Status PlanFor(const std::string& format, const TrainingState& state) {
    const Format* const target = *FindFormat(format);
    auto view = ViewModel(state.weights, format, {});
    EXPECT_THAT(view, IsOk());
    for (TargetTensor& tensor : view->tensors) tensor.key = target->run->weight_key(tensor.key);
    view->layout.prefix.clear();
    EXPECT_THAT(AddOptimizer(state, *target, {}, *view), IsOk());
    std::vector<LeftOutEntry> left_out;
    return RunForTarget(state, *target, *view, left_out).status();
  }
};

constexpr const char* kEmbedding = "embedding.word_embeddings.weight";

TEST_F(GroupMembersTest, OfMegatronAreKnownToReaders) {
  const TrainingState state = State();
  EXPECT_THAT(PlanFor("torch_dist", state), IsOk());
  EXPECT_THAT(PlanFor("fsdp_dtensor", state), IsOk());
}

// A program asks for the groups that it stored, though some have the same settings.
TEST_F(GroupMembersTest, StayApartInTheirOwnFormat) {
  TrainingState state = State();
  state.run.groups.push_back(state.run.groups.front());
  state.run.group_of.front().second = state.run.groups.size() - 1;
  const auto groups = [&](EqualGroups equal) {
    auto of = OptimizerGroups::Of(state, equal);
    EXPECT_THAT(of, IsOk());
    return of->groups().size();
  };
  EXPECT_EQ(groups(EqualGroups::kApart), groups(EqualGroups::kOne) + 1);
}

TEST_F(GroupMembersTest, AreRefusedWhereReadersWouldTakeOthers) {
  TrainingState state = State();
  const std::size_t spared =
      GroupWhere(state, [](const ParamGroup& group) { return group.wd_mult == 0; });
  std::ranges::find(state.run.group_of, kEmbedding, &std::pair<std::string, std::size_t>::first)
      ->second = spared;
  const Status refused = PlanFor("torch_dist", state);
  EXPECT_THAT(refused, FailsWith(ErrorKind::kUnsupported));
  EXPECT_THAT(refused.ToString(),
              AllOf(HasSubstr("does not store which parameters belong to which group"),
                    HasSubstr(kEmbedding), HasSubstr("weight decay 0,")));
  EXPECT_THAT(PlanFor("fsdp_dtensor", state), IsOk());
}

TEST_F(GroupMembersTest, OfNormsThatDecayAreKnownByTheArguments) {
  TrainingState state = State("moe_ep2_fsdp4");
  const std::size_t decayed =
      GroupWhere(state, [](const ParamGroup& group) { return group.wd_mult != 0; });
  std::size_t moved = 0;
  for (auto& [name, group] : state.run.group_of) {
    if (name.find("q_layernorm.") == std::string::npos &&
        name.find("k_layernorm.") == std::string::npos) {
      continue;
    }
    group = decayed;
    ++moved;
  }
  ASSERT_GT(moved, 0U);
  EXPECT_THAT(PlanFor("torch_dist", state), FailsWith(ErrorKind::kUnsupported));
  const auto flag = std::ranges::find(state.run.args, "apply_wd_to_qk_layernorm",
                                      &std::pair<std::string, layout::Value>::first);
  ASSERT_NE(flag, state.run.args.end());
  flag->second = layout::Value(true);
  EXPECT_THAT(PlanFor("torch_dist", state), IsOk());
}

TEST_F(GroupMembersTest, AreRefusedWhereDecayDoesNotTellThemApart) {
  TrainingState state = State();
  const std::size_t decayed =
      GroupWhere(state, [](const ParamGroup& group) { return group.wd_mult != 0; });
  state.run.groups.push_back(state.run.groups[decayed]);
  state.run.groups.back().lr *= 2;
  std::ranges::find(state.run.group_of, kEmbedding, &std::pair<std::string, std::size_t>::first)
      ->second = state.run.groups.size() - 1;
  const Status refused = PlanFor("torch_dist", state);
  EXPECT_THAT(refused, FailsWith(ErrorKind::kUnsupported));
  EXPECT_THAT(refused.ToString(),
              HasSubstr("does not store which parameters belong to which group"));
  EXPECT_THAT(PlanFor("fsdp_dtensor", state), IsOk());
}

}  // namespace
}  // namespace ckpt

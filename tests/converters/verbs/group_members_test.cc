// Which parameters belong to which group of the optimizer, where a format does not store it.
#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "converters/verbs/internal/convert_run.h"
#include "converters/verbs/optimizer_groups.h"
#include "converters/verbs/training_state.h"
#include "core/checkpoint/copy_index.h"
#include "core/checkpoint/view_source.h"
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
  static OpenedCheckpoint Open(const char* golden) {
    auto opened = OpenCheckpoint(PosixStorage(), GoldenDir() / "fsdp_dtensor" / golden / "ckpt");
    EXPECT_THAT(opened, IsOk());
    return std::move(opened).value();
  }
  static Result<TrainingState> Understand(OpenedCheckpoint opened) {
    return UnderstandTrainingState(PosixStorage(),
                                   std::make_shared<const OpenedCheckpoint>(std::move(opened)), {},
                                   RunDetail::kWhole);
  }
  // A run of Megatron-FSDP, whose groups are those that Megatron makes: all parameters decay but
  // vectors.
  static TrainingState State(const char* golden = "dense_fsdp2") {
    auto state = Understand(Open(golden));
    EXPECT_THAT(state, IsOk());
    return std::move(state).value();
  }

  static std::size_t GroupWhere(const TrainingState& state,
                                const std::function<bool(const ParamGroup&)>& is_it) {
    const auto found = std::ranges::find_if(state.run.groups, is_it);
    EXPECT_NE(found, state.run.groups.end());
    return static_cast<std::size_t>(found - state.run.groups.begin());
  }

  struct Planned {
    ModelView view;
    Result<TrainingRun> run;
  };
  static Planned Plan(const std::string& format, const TrainingState& state) {
    const Format* const target = *FindFormat(format);
    auto view = ViewModel(state.weights, format, {});
    EXPECT_THAT(view, IsOk());
    for (TargetTensor& tensor : view->tensors) {
      tensor.key = target->run->weight_key(tensor.key.substr(view->layout.prefix.size()));
    }
    view->layout.prefix.clear();
    EXPECT_THAT(AddOptimizer(state, *target, {}, *view), IsOk());
    std::vector<LeftOutEntry> left_out;
    Result<TrainingRun> run = RunForTarget(state, *target, *view, left_out);
    return {*std::move(view), std::move(run)};
  }
  static Status PlanFor(const std::string& format, const TrainingState& state) {
    return Plan(format, state).run.status();
  }
};

// The run as SGD without momentum leaves it: groups, and nothing that the optimizer keeps.
class SgdSource final : public ViewSource {
 public:
  // `without`: a parameter that the optimizer does not have.
  SgdSource(std::shared_ptr<const CheckpointSource> adam, std::string_view without)
      : ViewSource(std::move(adam)) {
    const CheckpointIndex& stored = below().index();
    IndexBuilder builder;
    BeginCopy(stored, builder);
    for (const GlobalTensor& tensor : stored.tensors()) {
      if (!tensor.key.starts_with("optimizer.")) CopyTensor(stored, tensor, builder);
    }
    for (ObjectEntry object : stored.objects()) {
      const bool is_of_group = object.key.starts_with("optimizer.param_to_group_meta.");
      if (is_of_group && !without.empty() && object.key.find(without) != std::string::npos) {
        continue;
      }
      if (is_of_group && object.key.ends_with(".eps")) continue;
      if (is_of_group && object.key.ends_with(".bias_correction")) continue;
      if (is_of_group && object.key.ends_with(kBetas)) {
        object.key.replace(object.key.size() - kBetas.size(), kBetas.size(), kMomentum);
      }
      builder.AddObject(std::move(object));
    }
    SetIndex(builder.Build().value());
  }

  Result<RenderedObject> ReadObject(const ObjectEntry& object) const override {
    if (!object.key.ends_with(kMomentum)) return ViewSource::ReadObject(object);
    return RenderedObject{.type = "float", .json = "0.0", .warnings = {}};
  }

 private:
  static constexpr std::string_view kBetas = ".betas";
  static constexpr std::string_view kMomentum = ".momentum";
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

TEST_F(GroupMembersTest, OfAnOptimizerThatKeepsNothingAreTheWeightsThatItNames) {
  constexpr std::string_view kFrozen = "decoder.final_layernorm.weight";
  for (const std::string_view without : {std::string_view(), kFrozen}) {
    OpenedCheckpoint opened = Open("dense_fsdp2");
    opened.source = std::make_shared<const SgdSource>(opened.source, without);
    const auto state = Understand(std::move(opened));
    ASSERT_THAT(state, IsOk());
    EXPECT_TRUE(state->run.uses_sgd());
    EXPECT_TRUE(state->moments.empty());
    for (const char* format : {"torch_dist", "fsdp_dtensor", "fsdp2"}) {
      SCOPED_TRACE(format);
      const Planned planned = Plan(format, *state);
      ASSERT_THAT(planned.run, IsOk());
      const Format& target = **FindFormat(format);
      const std::string of_weights = target.run->weight_key("");
      std::set<std::string> trained;
      for (const auto& [name, group] : planned.run->group_of) trained.insert(name);
      std::size_t weights = 0;
      std::size_t exact = 0;
      for (std::size_t t = 0; t < planned.view.tensors.size(); ++t) {
        const std::string& key = planned.view.tensors[t].key;
        if (key.starts_with("optimizer.state.")) {
          ++exact;
        } else if (!planned.view.derived[t]) {
          ++weights;
          const bool is_trained = trained.contains(key.substr(of_weights.size()));
          EXPECT_EQ(is_trained, without.empty() || !key.ends_with("norm.weight") ||
                                    key.find("layers.") != std::string::npos)
              << key;
        }
      }
      EXPECT_EQ(trained.size(), weights - (without.empty() ? 0 : 1));
      const bool has_exact = target.run->main_weight_key != nullptr;
      EXPECT_EQ(exact, has_exact ? trained.size() : 0);
    }
  }
}

TEST_F(GroupMembersTest, ThatAreNoWeightsAreRefused) {
  OpenedCheckpoint opened = Open("dense_fsdp2");
  opened.source = std::make_shared<const SgdSource>(opened.source, "");
  OpenModelOptions smaller;
  smaller.drop = {"*final_layernorm*"};
  smaller.allow_missing = true;
  const auto refused = UnderstandTrainingState(
      PosixStorage(), std::make_shared<const OpenedCheckpoint>(std::move(opened)), smaller,
      RunDetail::kWhole);
  ASSERT_THAT(refused, FailsWith(ErrorKind::kMissing));
  EXPECT_THAT(refused.status().first().tensor, HasSubstr("final_layernorm"));
}

}  // namespace
}  // namespace ckpt

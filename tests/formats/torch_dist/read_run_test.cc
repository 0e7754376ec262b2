// Runs in a common state that says anything.
#include "formats/torch_dist/internal/read_run.h"

#include <array>
#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/endian.h"
#include "core/io/storage.h"
#include "tests/testing/matchers.h"

namespace ckpt::torch_dist {
namespace {

using ::testing::ElementsAre;
using testing::FailsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

// Tensors without values, but for some of two equal ones, and a common state.
class StatedSource final : public CheckpointSource {
 public:
  StatedSource(const std::vector<std::string>& tensors, std::string common)
      : common_({.type = "dict", .json = std::move(common), .warnings = {}}) {
    IndexBuilder builder;
    const FileId file = builder.AddFile("__0_0.distcp");
    const EncodingId raw = builder.AddEncoding("raw");
    for (const std::string& key : tensors) {
      builder.AddTensor(key, DType::kFloat32, {2});
      builder.AddChunk(Box{.offsets = {0}, .sizes = {2}}, file, raw, 0, 8);
    }
    if (!common_.json.empty()) {
      builder.AddObject({.key = "common_state", .file = file, .encoding = raw, .size_bytes = 1});
    }
    index_ = builder.Build().value();
  }

  [[nodiscard]] const CheckpointIndex& index() const override { return index_; }
  [[nodiscard]] Result<StoredArray> Locate(const GlobalTensor& tensor,
                                           const Chunk& /*chunk*/) const override {
    const auto value = values_.find(tensor.key);
    if (value == values_.end()) return Error(ErrorKind::kInternal, "no values").Tensor(tensor.key);
    Bytes elements;
    for (int i = 0; i < 2; ++i) AppendLe(value->second, elements);
    return StoredArray{.file = MakeMemoryFile(tensor.key, std::move(elements)), .strides = {1}};
  }
  [[nodiscard]] Result<RenderedObject> ReadObject(const ObjectEntry& /*object*/) const override {
    return common_;
  }
  [[nodiscard]] Result<std::uint64_t> FileSize(FileId /*file*/) const override { return 8; }
  [[nodiscard]] Protection protection() const override { return {}; }

  // What the common state does not say of its tensors.
  void AddNumber(DType dtype, const std::string& sha256, double number) {
    common_.numbers[{dtype, sha256}] = number;
  }
  void SetValue(const std::string& key, float value) { values_[key] = value; }

 private:
  RenderedObject common_;
  CheckpointIndex index_;
  std::map<std::string, float> values_;
};

// As Megatron stores it.
std::string Schedule(int num_steps = 8) {
  return fmt::format(R"({{"num_steps": {}, "max_lr": 0.5, "min_lr": 0.0, "lr_warmup_steps": 0,)"
                     R"( "lr_decay_steps": 8, "lr_decay_style": "constant"}})",
                     num_steps);
}

const std::string kArgs =
    R"("args": {"$object": {"class": "argparse.Namespace", "state": )"
    R"({"consumed_train_samples": 8, "global_batch_size": 4, "seed": 7}}}, "iteration": 2, )"
    R"("opt_param_scheduler": )" +
    Schedule() + ", ";

std::string State(const std::string& optimizer) {
  return "{" + kArgs + "\"optimizer\": " + optimizer + "}";
}
std::string Groups(const std::string& groups) {
  return State(R"({"optimizer": {"param_groups": [)" + groups + "]}}");
}

const std::vector<std::string> kTensors = {
    "w", "optimizer.state.param.w", "optimizer.state.exp_avg.w", "optimizer.state.exp_avg_sq.w"};

TEST(ReadRunTest, ReadsWhatResumingNeeds) {
  const StatedSource source(
      kTensors, Groups(R"({"step": 2.0, "wd_mult": 1.0, "betas": {"$tuple": [0.8, 0.9]}},)"
                       R"({"step": 2, "wd_mult": 0.0, "is_expert_parallel": true})"));
  EXPECT_TRUE(HoldsRun(source.index()));
  const auto stored = ReadRun(source, RunDetail::kToResume);
  ASSERT_THAT(stored, IsOk());
  const TrainingRun& run = stored->run;
  EXPECT_EQ(run.finished_updates(), 2);
  EXPECT_EQ(run.iteration, 2);
  EXPECT_EQ(run.consumed_samples, 8);
  EXPECT_EQ(run.seed, 7U);
  ASSERT_EQ(run.groups.size(), 2U);
  EXPECT_EQ(run.groups[0].betas, (std::array<double, 2>{0.8, 0.9}));
  EXPECT_EQ(run.groups[1].max_lr, 0.5);
  EXPECT_TRUE(run.groups[1].is_expert_parallel);
  ASSERT_EQ(stored->moments.size(), 2U);
  EXPECT_EQ(stored->moments[1].weight_of.at("optimizer.state.exp_avg_sq.w"), "w");
  EXPECT_EQ(stored->main_weights.at("optimizer.state.param.w"), "w");
}

TEST(ReadRunTest, NamesWhatNoRunHas) {
  const StatedSource source(
      kTensors,
      "{" + kArgs +
          R"("checkpoint_version": 3.0, "content_metadata": {}, "rng_state": null,)"
          R"( "mine": {"a": [{"$tensor": {"shape": [5], "dtype": "int64", "sha256": "ab"}}]},)"
          R"( "optimizer": {"optimizer": {"param_groups": [{"step": 2}]},)"
          R"( "grad_scaler": {"scale": {"$tensor": {"shape": [1], "dtype": "float32",)"
          R"( "sha256": "cd"}}}}})");
  const auto stored = ReadRun(source, RunDetail::kWhole);
  ASSERT_THAT(stored, IsOk());
  std::vector<std::pair<std::string, std::uint64_t>> unread;
  for (const UnreadMember& member : stored->unread) {
    unread.emplace_back(member.where, member.bytes);
  }
  EXPECT_THAT(unread, UnorderedElementsAre(Pair("common_state/mine", 40),
                                           Pair("common_state/optimizer/grad_scaler", 4)));
}

// The scheduler reads `start_wd` of a group before its own.
TEST(ReadRunTest, KeepsWhatElseAGroupSays) {
  const StatedSource source(
      kTensors, Groups(R"({"step": 2, "wd_mult": 1.0, "start_wd": 0.3, "optimizer": "muon",)"
                       R"( "bias_correction": true})"));
  const auto stored = ReadRun(source, RunDetail::kWhole);
  ASSERT_THAT(stored, IsOk());
  EXPECT_THAT(stored->run.groups[0].others, ElementsAre(Pair("optimizer", layout::Value("muon")),
                                                        Pair("start_wd", layout::Value(0.3))));
}

// The optimizer loads its groups, whatever the arguments say.
TEST(ReadRunTest, BelievesTheGroupsOfTheDecay) {
  const StatedSource source(kTensors, Groups(R"({"step": 2, "decoupled_weight_decay": false})"));
  const auto stored = ReadRun(source, RunDetail::kWhole);
  ASSERT_THAT(stored, IsOk());
  const layout::Value* const decoupled = FindArg(stored->run, "decoupled_weight_decay");
  ASSERT_NE(decoupled, nullptr);
  EXPECT_EQ(*decoupled, layout::Value(false));
  const StatedSource both(kTensors, Groups(R"({"step": 2, "decoupled_weight_decay": false},)"
                                           R"({"step": 2, "decoupled_weight_decay": true})"));
  EXPECT_THAT(ReadRun(both, RunDetail::kWhole), FailsWith(ErrorKind::kUnsupported));
}

TEST(ReadRunTest, ReadsAScheduleUnderEarlierNames) {
  const StatedSource source(
      kTensors,
      R"({"args": {"$object": {"class": "argparse.Namespace", "state": )"
      R"({"consumed_train_samples": 8, "global_batch_size": 4}}}, "iteration": 2, )"
      R"("lr_scheduler": {"num_iters": 8, "start_lr": 0.5, "warmup_iter": 4, "end_iter": 80,)"
      R"( "decay_style": "cosine", "min_lr": 0.25, "kept_for": 1},)"
      R"( "optimizer": {"optimizer": {"param_groups": [{"step": 2}]}}})");
  const auto stored = ReadRun(source, RunDetail::kToResume);
  ASSERT_THAT(stored, IsOk());
  EXPECT_EQ(stored->run.schedule, (RunSchedule{.max_lr = 0.5,
                                               .min_lr = 0.25,
                                               .lr_warmup_steps = 4,
                                               .num_steps = 8,
                                               .lr_decay_style = "cosine",
                                               .lr_decay_steps = 80}));
  EXPECT_EQ(stored->run.groups[0].max_lr, 0.5);
  ASSERT_EQ(stored->unread.size(), 1U);
  EXPECT_EQ(stored->unread[0].where, "common_state: /lr_scheduler/kept_for");
}

TEST(ReadRunTest, RefusesHalfASchedule) {
  const StatedSource source(
      kTensors, R"({"args": {"$object": {"class": "argparse.Namespace", "state": )"
                R"({"consumed_train_samples": 8}}}, "iteration": 2, "opt_param_scheduler": )"
                R"({"num_steps": 8, "max_lr": 0.5}, "optimizer": {"optimizer":)"
                R"( {"param_groups": [{"step": 2, "lr": 0.5, "weight_decay": 0.1}]}}})");
  const auto stored = ReadRun(source, RunDetail::kWhole);
  ASSERT_THAT(stored, FailsWith(ErrorKind::kMissing));
  EXPECT_THAT(stored.status().first().tensor, HasSubstr("min_lr"));
}

TEST(ReadRunTest, WithoutAScheduleTheRateStays) {
  const StatedSource source(
      kTensors, R"({"args": {"$object": {"class": "argparse.Namespace", "state": )"
                R"({"consumed_train_samples": 8}}}, "iteration": 2, "optimizer": {"optimizer":)"
                R"( {"param_groups": [{"step": 2, "lr": 0.5, "weight_decay": 0.1}]}}})");
  const auto stored = ReadRun(source, RunDetail::kWhole);
  ASSERT_THAT(stored, IsOk());
  EXPECT_EQ(stored->run.schedule.max_lr, 0.5);
  EXPECT_EQ(stored->run.schedule.start_wd, 0.1);
  EXPECT_EQ(stored->run.groups[0].max_lr, 0.5);
  ASSERT_EQ(stored->assumptions.size(), 1U);
}

TEST(ReadRunTest, RefusesASizeThatNoTensorHas) {
  for (const char* shape : {"[-5, 4]", "[9223372036854775807, 4]"}) {
    const StatedSource source(
        kTensors, "{" + kArgs + R"("mine": {"$tensor": {"shape": )" + shape +
                      R"(, "dtype": "float32"}}, )"
                      R"("optimizer": {"optimizer": {"param_groups": [{"step": 2}]}}})");
    const auto stored = ReadRun(source, RunDetail::kWhole);
    ASSERT_FALSE(stored.ok()) << shape;
    EXPECT_EQ(stored.status().first().tensor, "common_state: /mine") << shape;
  }
}

// Two optimizers, told apart by numbers or not.
TEST(ReadRunTest, ReadsSeveralOptimizers) {
  const StatedSource source(
      {"v", "w", "chained_0.optimizer.state.exp_avg.v", "chained_1.optimizer.state.exp_avg.w",
       "chained_0.optimizer.state.exp_avg_sq.v", "chained_1.optimizer.state.exp_avg_sq.w"},
      State(R"({"$dict": [[0, {"optimizer": {"param_groups": [{"step": 2}]}}],)"
            R"([1, {"optimizer": {"param_groups": [{"step": 2}]}}]]})"));
  const auto stored = ReadRun(source, RunDetail::kWhole);
  ASSERT_THAT(stored, IsOk());
  EXPECT_EQ(stored->run.groups.size(), 2U);
  ASSERT_EQ(stored->moments.size(), 2U);
  EXPECT_EQ(stored->moments[0].weight_of.size(), 2U);
  EXPECT_TRUE(stored->main_weights.empty());
}

// A run goes on with them. Weights of 8 bits are rounded otherwise.
TEST(ReadRunTest, TellsOfExactWeightsThatRoundToOthers) {
  const auto read = [](const std::string& args) {
    StatedSource source(kTensors,
                        R"({"args": {"$object": {"class": "argparse.Namespace", "state": )"
                        R"({"consumed_train_samples": 8, "global_batch_size": 4)" +
                            args + R"(}}}, "iteration": 2, "opt_param_scheduler": )" + Schedule() +
                            ","
                            R"( "optimizer": {"param_groups": [{"step": 2}]}})");
    source.SetValue("w", 0.5F);
    source.SetValue("optimizer.state.param.w", 0.25F);
    return ReadRun(source, RunDetail::kToResume);
  };
  const auto stored = read("");
  ASSERT_THAT(stored, IsOk());
  ASSERT_EQ(stored->assumptions.size(), 1U);
  EXPECT_EQ(stored->assumptions[0].kind, ErrorKind::kValueMismatch);
  EXPECT_EQ(stored->assumptions[0].severity, Severity::kWarning);
  EXPECT_EQ(stored->assumptions[0].tensor, "optimizer.state.param.w");
  EXPECT_EQ(stored->assumptions[0].expected, "0.5 at [0]");
  EXPECT_EQ(stored->assumptions[0].actual, "0.25");
  const auto narrow = read(R"(, "fp8_param_gather": true)");
  ASSERT_THAT(narrow, IsOk());
  EXPECT_THAT(narrow->assumptions, IsEmpty());
}

// The schedule counts for optimizers that do not count, and for no others.
TEST(ReadRunTest, RefusesAStepBelowZero) {
  for (const RunDetail detail : {RunDetail::kToResume, RunDetail::kWhole}) {
    EXPECT_THAT(ReadRun(StatedSource(kTensors, Groups(R"({"step": -1})")), detail),
                FailsWith(ErrorKind::kBadMetadata));
  }
}

// As an optimizer that is not distributed has it with torch's own Adam.
TEST(ReadRunTest, ReadsAStepInATensor) {
  StatedSource source(kTensors,
                      State(R"({"optimizer": {"state": {"common_step":)"
                            R"( {"$tensor": {"shape": [], "dtype": "float32", "sha256": "ab"}}},)"
                            R"( "param_groups": [{"wd_mult": 1.0}, {"wd_mult": 0.0}]},)"
                            R"( "fp32_from_fp16_params": []})"));
  source.AddNumber(DType::kInt32, "ab", 5);
  EXPECT_THAT(ReadRun(source, RunDetail::kToResume), FailsWith(ErrorKind::kUnsupported));
  source.AddNumber(DType::kFloat32, "ab", 2.5);
  EXPECT_THAT(ReadRun(source, RunDetail::kToResume), FailsWith(ErrorKind::kBadMetadata));
  source.AddNumber(DType::kFloat32, "ab", 2);
  const auto stored = ReadRun(source, RunDetail::kToResume);
  ASSERT_THAT(stored, IsOk());
  ASSERT_EQ(stored->run.groups.size(), 2U);
  EXPECT_EQ(stored->run.groups[1].step, 2);
}

// The embedding and the head are told apart from what decays like them.
TEST(ReadRunTest, NamesWhatHasARateOfItsOwn) {
  const auto read = [](const std::string& rate) {
    std::vector<std::string> tensors;
    for (const char* name : {"embedding.word_embeddings.weight", "w", "output_layer.weight"}) {
      tensors.emplace_back(name);
      for (const char* moment : {"exp_avg", "exp_avg_sq"}) {
        tensors.push_back(std::string("optimizer.state.") + moment + "." + name);
      }
    }
    return ReadRun(
        StatedSource(
            tensors,
            R"({"args": {"$object": {"class": "argparse.Namespace", "state": )"
            R"({"consumed_train_samples": 8, "decoupled_lr": )" +
                rate +
                R"(}}}, "iteration": 2, "optimizer": {"param_groups": [{"step": 2},)"
                R"( {"step": 2, "default_config": false}, {"step": 2, "wd_mult": 0.0}]}})"),
        RunDetail::kWhole);
  };
  for (const char* rate : {"0.5", "1"}) {
    const auto stored = read(rate);
    ASSERT_THAT(stored, IsOk());
    EXPECT_TRUE(stored->run.others_by_decay) << rate;
    EXPECT_THAT(stored->run.group_of,
                UnorderedElementsAre(Pair("embedding.word_embeddings.weight", 1),
                                     Pair("output_layer.weight", 1)));
    EXPECT_FALSE(stored->run.groups[1].default_config);
  }
  const auto others = read("null");  // something else has another rate
  ASSERT_THAT(others, IsOk());
  EXPECT_THAT(others->run.group_of, IsEmpty());
}

// What follows from the arguments, for groups as two generations of Megatron-Core store them.
TEST(ReadRunTest, NamesWhatDecaysOtherwiseThanItsShapeSays) {
  const auto read = [](const std::string& args, const std::string& more) {
    std::vector<std::string> tensors;
    for (const char* name :
         {"embedding.word_embeddings.weight", "decoder.layers.self_attention.q_layernorm.weight",
          "decoder.layers.input_layernorm.weight"}) {
      tensors.emplace_back(name);
      for (const char* moment : {"exp_avg", "exp_avg_sq"}) {
        tensors.push_back(std::string("optimizer.state.") + moment + "." + name);
      }
    }
    const std::string common =
        R"({"args": {"$object": {"class": "argparse.Namespace", "state": )"
        R"({"consumed_train_samples": 8, )" +
        args + R"(}}}, "iteration": 2, "optimizer": {"param_groups": [{"step": 2)" + more +
        R"(}, {"step": 2, "wd_mult": 0.0)" + more + R"(}, {"step": 2, "wd_mult": 1.0, )" +
        R"("is_expert_parallel": true)" + more + "}]}}";
    return ReadRun(StatedSource(tensors, common), RunDetail::kWhole);
  };
  const std::string kNew = R"(, "default_config": true)";
  for (const char* args : {R"("apply_wd_to_qk_layernorm": true)",
                           R"("no_weight_decay_cond_type": "apply_wd_to_qk_layernorm")"}) {
    const auto stored = read(args, kNew);
    ASSERT_THAT(stored, IsOk());
    EXPECT_TRUE(stored->run.others_by_decay) << args;
    EXPECT_THAT(stored->run.group_of,
                UnorderedElementsAre(Pair("decoder.layers.self_attention.q_layernorm.weight", 0)));
  }
  const std::string kEmbeddings = R"("embedding_init_method_std": 0.01)";
  const auto old = read(kEmbeddings, R"(, "is_decoupled_lr": false)");
  ASSERT_THAT(old, IsOk());
  EXPECT_THAT(old->run.group_of, UnorderedElementsAre(Pair("embedding.word_embeddings.weight", 1)));
  for (const auto& [args, more] :
       {std::pair(kEmbeddings, kNew),
        std::pair(std::string(R"("embedding_init_method_std": null)"), std::string()),
        std::pair(std::string(R"("apply_wd_to_qk_layernorm": false)"), kNew)}) {
    const auto usual = read(args, more);
    ASSERT_THAT(usual, IsOk());
    EXPECT_THAT(usual->run.group_of, IsEmpty()) << args;
    EXPECT_FALSE(usual->run.others_by_decay) << args;
  }
}

TEST(ReadRunTest, RefusesAnOptimizerWithoutSquares) {
  const auto stored =
      ReadRun(StatedSource({"w", "optimizer.state.exp_avg.w"}, Groups(R"({"step": 2})")),
              RunDetail::kWhole);
  ASSERT_THAT(stored, FailsWith(ErrorKind::kUnsupported));
  EXPECT_EQ(stored.status().first().message, "the optimizer is neither Adam nor SGD");
}

// One error, and not one for each weight and moment. What else the checkpoint lacks does not
// matter.
TEST(ReadRunTest, RefusesMomentumOfSomeWeightsAndMomentsOfOthers) {
  const StatedSource source(
      {"a", "b", "c", "norm", "optimizer.state.fp32_param.a", "optimizer.state.momentum_buffer.a",
       "optimizer.state.momentum_buffer.b", "optimizer.state.momentum_buffer.c",
       "optimizer.state.exp_avg.norm", "optimizer.state.exp_avg_sq.norm"},
      Groups(R"({"step": 2})"));
  const auto stored = ReadRun(source, RunDetail::kWhole);
  ASSERT_THAT(stored, FailsWith(ErrorKind::kUnsupported));
  ASSERT_EQ(stored.status().problems().size(), 1U);
  const Problem& why = stored.status().first();
  EXPECT_EQ(why.message, "the optimizer is neither Adam nor SGD");
  EXPECT_EQ(why.actual, "momentum_buffer for a and 2 more, exp_avg for norm");
  EXPECT_EQ(why.hint, kTakeWeightsAlone);
}

TEST(ReadRunTest, NamesTheGroupThatWasUpdatedUnequallyOften) {
  const StatedSource source(kTensors,
                            Groups(R"({"step": 2}, {"step": 2, "wd_mult": 0.0}, {"step": 1, )"
                                   R"("wd_mult": 0.0, "is_expert_parallel": true})"));
  const auto stored = ReadRun(source, RunDetail::kWhole);
  ASSERT_THAT(stored, FailsWith(ErrorKind::kUnsupported));
  const Problem& why = stored.status().first();
  EXPECT_EQ(why.tensor, "common_state");
  EXPECT_EQ(why.expected, "2 updates, as of group 0");
  EXPECT_EQ(why.actual, "1 of group 2 (experts, wd_mult 0, lr_mult 1)");
  EXPECT_EQ(why.hint, kTakeWeightsAlone);
}

// SGD does not count updates, but the schedule counts samples.
TEST(ReadRunTest, FindsOutHowOftenSgdUpdated) {
  const auto read = [](int iteration, int batch, int samples) {
    const std::vector<std::string> tensors = {"w", "optimizer.state.fp32_param.w",
                                              "optimizer.state.momentum_buffer.w"};
    const std::string common = fmt::format(
        R"({{"args": {{"$object": {{"class": "argparse.Namespace", "state": )"
        R"({{"consumed_train_samples": 20, "global_batch_size": {}}}}}}}, "iteration": {}, )"
        R"("opt_param_scheduler": {}, )"
        R"("optimizer": {{"optimizer": {{"param_groups": )"
        R"([{{"momentum": 0.75, "nesterov": true}}]}}}}}})",
        batch, iteration, Schedule(samples));
    return ReadRun(StatedSource(tensors, common), RunDetail::kToResume);
  };
  const auto stored = read(5, 4, 12);  // two updates were skipped
  ASSERT_THAT(stored, IsOk());
  EXPECT_EQ(stored->run.finished_updates(), 3);
  EXPECT_EQ(stored->run.groups[0].sgd, (SgdSettings{.momentum = 0.75, .nesterov = true}));
  ASSERT_EQ(stored->moments.size(), 1U);
  EXPECT_EQ(stored->moments[0].name, "momentum_buffer");
  EXPECT_THAT(read(6, 4, 12), FailsWith(ErrorKind::kMissing));  // unequal batches
  EXPECT_THAT(read(5, 8, 16), FailsWith(ErrorKind::kMissing));  // of another size than at the end
  EXPECT_THAT(read(5, 4, 13), FailsWith(ErrorKind::kMissing));
  EXPECT_THAT(read(5, 4, 24), FailsWith(ErrorKind::kMissing));
}

// Without momentum SGD keeps nothing at all.
TEST(ReadRunTest, KnowsSgdByItsGroups) {
  const StatedSource source(
      {"w"}, R"({"args": {"$object": {"class": "argparse.Namespace", "state": )"
             R"({"consumed_train_samples": 8, "global_batch_size": 4}}}, "iteration": 2, )"
             R"("opt_param_scheduler": )" +
                 Schedule() +
                 R"(, "optimizer": {"param_groups": [{"momentum": 0, "dampening": 0}]}})");
  const auto stored = ReadRun(source, RunDetail::kToResume);
  ASSERT_THAT(stored, IsOk());
  EXPECT_TRUE(stored->run.uses_sgd());
  EXPECT_EQ(stored->run.finished_updates(), 2);
  EXPECT_THAT(stored->moments, IsEmpty());
}

// Then its common state is all that the checkpoint holds of it.
TEST(ReadRunTest, HoldsAnOptimizerInItsCommonStateAlone) {
  const auto holds = [](const std::string& optimizer) {
    return HoldsGroups(StatedSource({"w"}, State(optimizer)));
  };
  EXPECT_TRUE(holds(R"({"param_groups": [{"momentum": 0.0}]})"));
  EXPECT_TRUE(holds(R"({"optimizer": {"state": {}, "param_groups": [{"momentum": 0.0}]}})"));
  EXPECT_TRUE(holds(R"({"$dict": [[0, {"param_groups": []}],)"
                    R"( [1, {"param_groups": [{"momentum": 0.0}]}]]})"));
  EXPECT_TRUE(holds(R"({"param_groups": 3})"));  // ReadRun says what is wrong with it
  // Adam keeps something, so this is what is left of a run whose optimizer was taken out.
  EXPECT_FALSE(holds(R"({"param_groups": [{"step": 2, "betas": {"$tuple": [0.9, 0.99]}}]})"));
  EXPECT_FALSE(holds("null"));
  EXPECT_FALSE(HoldsGroups(StatedSource({"w"}, "{}")));
  EXPECT_FALSE(HoldsGroups(StatedSource({"w"}, "")));
}

// Weights have the names of parameters, so that those are told apart that arguments name.
TEST(ReadRunTest, NamesParametersOfSgdByTheirWeights) {
  const std::string norm = "decoder.layers.self_attention.q_layernorm.weight";
  const auto read = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"w", norm});
    return ReadRun(
        StatedSource(more, R"({"args": {"$object": {"class": "argparse.Namespace", "state": )"
                           R"({"consumed_train_samples": 8, "apply_wd_to_qk_layernorm": true}}}, )"
                           R"("iteration": 2, "opt_param_scheduler": )" +
                               Schedule() +
                               R"(, "optimizer": {"param_groups": [)"
                               R"({"momentum": 0.0, "wd_mult": 1.0, "default_config": true}, )"
                               R"({"momentum": 0.0, "wd_mult": 0.0, "default_config": true}]}})"),
        RunDetail::kWhole);
  };
  const auto all = read({});
  ASSERT_THAT(all, IsOk());
  EXPECT_THAT(all->run.group_of, UnorderedElementsAre(Pair(norm, 0)));
  EXPECT_TRUE(all->run.others_by_decay);
  // Who has exact weights updates these.
  const auto some = read({"optimizer.state.fp32_param.w"});
  ASSERT_THAT(some, IsOk());
  EXPECT_THAT(some->run.group_of, IsEmpty());
  EXPECT_EQ(some->main_weights.size(), 1U);
}

// Earlier versions of this program gave groups of SGD Adam's settings.
TEST(ReadRunTest, TakesAMomentumFromArgumentsIfGroupsHaveNone) {
  const StatedSource source(
      {"w", "optimizer.state.param.w", "optimizer.state.momentum_buffer.w"},
      R"({"args": {"$object": {"class": "argparse.Namespace", "state": )"
      R"({"consumed_train_samples": 8, "sgd_momentum": 0.5}}}, "iteration": 2, )"
      R"("optimizer": {"param_groups": [{"step": 2, "betas": {"$tuple": [0.9, 0.99]}}]}})");
  const auto stored = ReadRun(source, RunDetail::kWhole);
  ASSERT_THAT(stored, IsOk());
  EXPECT_EQ(stored->run.groups[0].sgd, SgdSettings{.momentum = 0.5});
}

TEST(ReadRunTest, HoldsNoneWithoutAnOptimizer) {
  EXPECT_FALSE(HoldsRun(StatedSource({"w", "decoder.optimizer"}, "{}").index()));
}

struct Refused {
  const char* name;
  std::string common;
  ErrorKind kind;
  const char* says;
  std::vector<std::string> tensors = kTensors;
};
void PrintTo(const Refused& c, std::ostream* os) { *os << c.name; }

class RefusedRunTest : public ::testing::TestWithParam<Refused> {};

TEST_P(RefusedRunTest, SaysWhy) {
  const StatedSource source(GetParam().tensors, GetParam().common);
  const auto stored = ReadRun(source, RunDetail::kToResume);
  ASSERT_THAT(stored, FailsWith(GetParam().kind));
  EXPECT_THAT(stored.status().ToString(), HasSubstr(GetParam().says));
}

std::vector<Refused> Cases() {
  std::string deep = R"({"param_groups": []})";
  for (int i = 0; i < 50; ++i) deep = R"({"optimizer": )" + deep + "}";
  return {
      {"NoCommonState", "", ErrorKind::kMissing, "no common state"},
      {"NotAnObject", "[]", ErrorKind::kMissing, "how often"},
      {"NoOptimizer", "{}", ErrorKind::kMissing, "how often"},
      {"NoGroups", Groups(""), ErrorKind::kMissing, "how often"},
      {"TooDeep", State(deep), ErrorKind::kMissing, "how often"},
      {"GroupsThatAreNoList", State(R"({"param_groups": 3})"), ErrorKind::kBadMetadata, "array"},
      {"NoStep", Groups(R"({"lr": 1.0})"), ErrorKind::kMissing, "no step at"},
      {"StepThatIsText", Groups(R"({"step": "2"})"), ErrorKind::kBadMetadata, "step"},
      {"HalfAStep", Groups(R"({"step": 2.5})"), ErrorKind::kBadMetadata, "not a whole number"},
      {"NegativeStep", Groups(R"({"step": -2.0})"), ErrorKind::kBadMetadata, "not a whole number"},
      {"HugeStep", Groups(R"({"step": 1e300})"), ErrorKind::kBadMetadata, "not a whole number"},
      {"StepInATensor", State(R"({"state": {"common_step": {"$tensor": {}}}, "param_groups": []})"),
       ErrorKind::kUnsupported, "the optimizer's count of updates is not a number"},
      {"UnequalSteps", Groups(R"({"step": 2}, {"step": 3})"), ErrorKind::kUnsupported,
       "unequally often"},
      {"BetasThatAreNoPair", Groups(R"({"step": 2, "betas": 0.8})"), ErrorKind::kBadMetadata,
       "not a pair"},
      {"OneBeta", Groups(R"({"step": 2, "betas": {"$tuple": [0.8]}})"), ErrorKind::kBadMetadata,
       "not a pair"},
      {"AnotherDirection", Groups(R"({"step": 2, "maximize": true})"), ErrorKind::kUnsupported,
       "the optimizer maximizes"},
      {"NoBiasCorrection", Groups(R"({"step": 2, "bias_correction": false})"),
       ErrorKind::kUnsupported, "does not correct the bias"},
      {"AnotherScheduleStep", Groups(R"({"step": 3})"), ErrorKind::kUnsupported,
       "at another step than the optimizer"},
      {"NoConsumedSamples", R"({"iteration": 2, "optimizer": {"param_groups": [{"step": 2}]}})",
       ErrorKind::kMissing, "consumed_train_samples"},
      {"AMomentIsAbsent",
       Groups(R"({"step": 2})"),
       ErrorKind::kMissing,
       "optimizer.state.exp_avg_sq.w",
       {"w", "optimizer.state.exp_avg.w", "optimizer.state.exp_avg.v",
        "optimizer.state.exp_avg_sq.v"}},
      {"MomentumThatIsAbsent",
       State(R"({"param_groups": [{"momentum": 0.9, "step": 2}]})"),
       ErrorKind::kMissing,
       "what it keeps of them is not there",
       {"w"}},
      {"MomentumOfOneGroupAlone",
       Groups(R"({"momentum": 0.9, "step": 2}, {"momentum": 0.0, "step": 2})"),
       ErrorKind::kUnsupported,
       "moments of one group of parameters and none of another",
       {"w", "optimizer.state.momentum_buffer.w"}},
      {"Buffers",
       Groups(R"({"step": 2})"),
       ErrorKind::kUnsupported,
       "lies in buffers",
       {"w", "optimizer.distributed.dp_group_idx_0.gbuf_idx_0.exp_avg"}},
      {"ChainedBuffers",
       Groups(R"({"step": 2})"),
       ErrorKind::kUnsupported,
       "lies in buffers",
       {"w", "chained_1.optimizer.distributed.dp_group_idx_0.gbuf_idx_0.exp_avg"}},
  };
}

INSTANTIATE_TEST_SUITE_P(All, RefusedRunTest, ::testing::ValuesIn(Cases()),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace ckpt::torch_dist

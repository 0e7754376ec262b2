// A run that was interrupted goes on as if nothing had happened.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "converters/verbs/comparison.h"
#include "converters/verbs/convert.h"
#include "converters/verbs/training_state.h"
#include "core/json/json_reader.h"
#include "formats/registry/registry.h"
#include "tests/testing/matchers.h"
#include "tests/tools/ckpt-train/small_training.h"
#include "tools/ckpt-train/cmd_evaluate.h"
#include "tools/ckpt-train/cmd_train.h"

namespace ckpt::train {
namespace {

using testing::Call;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;
using ::testing::Not;
using testing::Said;

class ResumeTest : public testing::SmallTraining {
 protected:
  // The last line that a run prints.
  static std::string DigestOf(const Said& said) {
    EXPECT_TRUE(said.IsDone()) << said.code.status().ToString() << said.err;
    const std::size_t at = said.out.rfind("state-digest ");
    EXPECT_NE(at, std::string::npos) << said.out;
    return at == std::string::npos ? "" : said.out.substr(at);
  }

  // Goes on with what lies in `out`; nothing else is said, but for the mesh.
  static TrainOptions GoOn(const Path& out, int ranks, std::vector<std::string> mesh = {}) {
    TrainOptions options;
    options.common.threads = 1;
    options.run.ranks = ranks;
    options.run.device = "cpu";  // also where there is a GPU
    options.run.load = out.string();
    options.run.save = out.string();
    options.run.set = std::move(mesh);
    options.print_state_digest = true;
    return options;
  }

  // Every line without what takes another time every time.
  Result<std::vector<std::string>> Metrics(const Path& path) {
    CKPT_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(PosixStorage(), path, 1 << 20));
    std::vector<std::string> lines;
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = text.find('\n', begin);
      const std::string line = text.substr(begin, end - begin);
      lines.push_back(line.substr(0, line.find(",\"step_ms\"")));
      begin = end + 1;
    }
    return lines;
  }
};

TEST_F(ResumeTest, TheSameMeshEndsWithTheSameBits) {
  TrainOptions whole = Options(2, {"expert_model_parallel_size=2"});
  whole.run.metrics = In("whole.jsonl").string();
  const std::string expected = DigestOf(Call(RunTrain, whole));

  TrainOptions first = Options(2, {"expert_model_parallel_size=2", "exit_interval=3"});
  first.run.metrics = In("parts.jsonl").string();
  first.run.save = In("out").string();
  const Said interrupted = Call(RunTrain, first);
  ASSERT_TRUE(interrupted.IsDone());
  EXPECT_THAT(interrupted.err, HasSubstr("ended after step 3"));
  TrainOptions second = GoOn(In("out"), 2, {"expert_model_parallel_size=2", "exit_interval=0"});
  second.run.metrics = In("parts.jsonl").string();
  EXPECT_EQ(DigestOf(Call(RunTrain, second)), expected);

  const auto parts = Metrics(In("parts.jsonl"));
  ASSERT_THAT(parts, IsOk());
  EXPECT_EQ(parts->size(), 8U);
  EXPECT_EQ(*parts, Metrics(In("whole.jsonl")).value());
}

// Sums that no mesh changes make runs on several meshes comparable bit for bit.
TEST_F(ResumeTest, CanonicalSumsEndWithTheSameBitsOnAnyMesh) {
  const std::string expected = DigestOf(Call(RunTrain, Options(1, {"reduction=canonical"})));

  TrainOptions first =
      Options(2, {"reduction=canonical", "expert_model_parallel_size=2", "exit_interval=3"});
  first.run.save = In("out").string();
  ASSERT_TRUE(Call(RunTrain, first).IsDone());
  TrainOptions second =
      GoOn(In("out"), 4,
           {"expert_model_parallel_size=1", "num_distributed_optimizer_instances=2",
            "outer_dp_sharding_strategy=optim", "exit_interval=6"});
  ASSERT_TRUE(Call(RunTrain, second).IsDone());
  TrainOptions third =
      GoOn(In("out"), 2,
           {"expert_model_parallel_size=1", "num_distributed_optimizer_instances=1",
            "data_parallel_sharding_strategy=no_shard", "outer_dp_sharding_strategy=no_shard",
            "exit_interval=0"});
  third.prove = true;
  EXPECT_EQ(DigestOf(Call(RunTrain, third)), expected);
}

TEST_F(ResumeTest, ProvesThatNothingWasLost) {
  TrainOptions first = Options(2, {"exit_interval=3"});
  first.run.save = In("out").string();
  ASSERT_TRUE(Call(RunTrain, first).IsDone());
  TrainOptions again = GoOn(In("out"), 1);
  again.prove = true;
  const Said said = Call(RunTrain, again);
  ASSERT_TRUE(said.IsDone()) << said.code.status().ToString() << said.err;
  EXPECT_THAT(said.err, HasSubstr("proved: the state digest is"));
  EXPECT_THAT(said.err, HasSubstr("loss of the batch after step 3"));
}

// A run in one file, and a file of something else.
TEST_F(ResumeTest, GoesOnFromAFile) {
  TrainOptions first = Options(2, {"exit_interval=3"});
  first.run.save = In("out").string();
  ASSERT_TRUE(Call(RunTrain, first).IsDone());
  ConvertOptions to_file;
  to_file.source = In("out");
  to_file.target = In("run.h5");
  to_file.to.container = *FindFormat("hdf5");
  const auto prepared = PrepareConversion(PosixStorage(), to_file);
  ASSERT_THAT(prepared, IsOk());
  ASSERT_THAT(RunConversion(PosixStorage(), *prepared, to_file), IsOk());
  const Said expected = Call(RunTrain, GoOn(In("out"), 2, {"exit_interval=0"}));
  TrainOptions again = GoOn(In("run.h5"), 2, {"exit_interval=0"});
  again.run.save = In("further").string();
  const Said said = Call(RunTrain, again);
  ASSERT_TRUE(said.IsDone()) << said.code.status().ToString();
  EXPECT_EQ(DigestOf(said), DigestOf(expected));

  const Said junk = Call(RunTrain, GoOn(In("data.jsonl"), 2));
  ASSERT_THAT(junk.code, FailsWith(ErrorKind::kUnsupported));
  EXPECT_THAT(junk.code.status().ToString(), HasSubstr("no checkpoint file of a known format"));
}

// Rows that pad the vocabulary take part in the loss and are trained. FSDP2's programs have none.
TEST_F(ResumeTest, GoesOnFromTheOtherFormatsWithItsPadding) {
  TrainOptions first = Options(2, {"exit_interval=3", "padded_vocab_size=320"});
  first.run.save = In("out").string();
  ASSERT_TRUE(Call(RunTrain, first).IsDone());
  const auto convert = [&](const std::string& from, const std::string& to) {
    ConvertOptions options;
    options.source = In(from);
    options.target = In(to);
    options.to.container = *FindFormat(to);
    const auto prepared = PrepareConversion(PosixStorage(), options);
    ASSERT_THAT(prepared, IsOk());
    ASSERT_THAT(RunConversion(PosixStorage(), *prepared, options), IsOk());
  };
  const auto go_on = [&](const std::string& from) {
    TrainOptions again = GoOn(In(from), 2, {"exit_interval=0"});
    again.run.save = In(from + "-further").string();
    return Call(RunTrain, again);
  };
  convert("out", "torch_dist");
  convert("torch_dist", "fsdp_dtensor");
  convert("fsdp_dtensor", "fsdp2");
  const std::string expected = DigestOf(go_on("out"));
  EXPECT_EQ(DigestOf(go_on("torch_dist")), expected);
  EXPECT_EQ(DigestOf(go_on("fsdp_dtensor")), expected);
  const Said unpadded = go_on("fsdp2");
  EXPECT_NE(DigestOf(unpadded), expected);

  // Two that have these rows are compared with them.
  const auto open = [&](const std::string& name) {
    return std::make_shared<const OpenedCheckpoint>(
        OpenCheckpoint(PosixStorage(), In(name)).value());
  };
  const auto takes_zeros = [&](const std::string& other) {
    const auto comparison = CompareCheckpoints(PosixStorage(), open("torch_dist"), open(other), {});
    EXPECT_THAT(comparison, IsOk());
    const auto pair = std::ranges::find(comparison->pairs,
                                        "optimizer.state.exp_avg.embedding.word_embeddings.weight",
                                        &TensorPair::key);
    EXPECT_NE(pair, comparison->pairs.end());
    return std::ranges::any_of(pair->a.recipe.nests, &layout::Nest::is_zero_fill);
  };
  EXPECT_FALSE(takes_zeros("fsdp_dtensor"));
  EXPECT_TRUE(takes_zeros("fsdp2"));
}

TEST_F(ResumeTest, DataOfTheSameSizesThatSaySomethingElseAreOtherData) {
  TrainOptions first = Options(2, {"exit_interval=3"});
  first.run.save = In("out").string();
  ASSERT_TRUE(Call(RunTrain, first).IsDone());
  WriteData("five six seven eig ");
  const Said said = Call(RunTrain, GoOn(In("out"), 2));
  ASSERT_THAT(said.code, FailsWith(ErrorKind::kUsage));
  EXPECT_THAT(said.code.status().ToString(), HasSubstr("would skip or repeat some"));
  EXPECT_TRUE(Call(RunTrain, GoOn(In("out"), 2, {"restart_data=true"})).IsDone());
}

TEST_F(ResumeTest, FindsALossThatChanged) {
  TrainOptions first = Options(2, {"exit_interval=3"});
  first.run.save = In("out").string();
  ASSERT_TRUE(Call(RunTrain, first).IsDone());
  TrainOptions again = GoOn(In("out"), 2, {"moe_expert_capacity_factor=0.25"});
  again.prove = true;
  const Said said = Call(RunTrain, again);
  ASSERT_THAT(said.code, IsOk());
  EXPECT_EQ(*said.code, cli::ExitCode::kDifferent);
  EXPECT_THAT(said.err, HasSubstr("the loss after loading differs from the stored loss"));
}

class ChangedRunTest : public ResumeTest {
 protected:
  void SetUp() override {
    ResumeTest::SetUp();
    TrainOptions first = Options(2, {"exit_interval=3", "save_interval=1"});
    first.run.save = In("out").string();
    ASSERT_TRUE(Call(RunTrain, first).IsDone());
  }

  // Runs on with `set`, and keeps one checkpoint only if it gets that far.
  Said GoOnWith(std::vector<std::string> set) {
    set.insert(set.end(), {"keep_checkpoints=1", "save_interval=1", "exit_interval=0"});
    return Call(RunTrain, GoOn(In("out"), 2, std::move(set)));
  }

  [[nodiscard]] std::size_t CountCheckpoints() const {
    return PosixStorage().List(In("out")).value().size() - 1;  // less the tracker
  }
};

TEST_F(ChangedRunTest, AnotherModelIsRefusedByTheNameOfTheSetting) {
  for (const char* change :
       {"num_experts=2", "num_layers=2", "vocab_size=200", "qk_layernorm=true", "swiglu=false",
        "moe_router_topk=1", "moe_shared_expert_intermediate_size=8", "rotary_base=500",
        "add_bias_linear=true", "hidden_size=48", "untie_embeddings_and_output_weights=false"}) {
    const Said said = GoOnWith({change});
    ASSERT_THAT(said.code, FailsWith(ErrorKind::kUsage)) << change;
    EXPECT_EQ(said.code.status().problems().size(), 1U) << said.code.status().ToString();
    const std::string name = std::string(change).substr(0, std::string(change).find('='));
    EXPECT_THAT(said.code.status().ToString(),
                HasSubstr("setting " + name + " changes the model of the stored run"));
    EXPECT_EQ(CountCheckpoints(), 3U);
  }
}

TEST_F(ChangedRunTest, ResumesWithOtherSpellingsAndAnotherBalanceOfExperts) {
  const Said said = GoOnWith({"moe_layer_freq=[1]", "rotary_base=1e4", "hidden_size=24",
                              "moe_router_load_balancing_type=aux_loss", "moe_aux_loss_coeff=0.01",
                              "moe_expert_capacity_factor=2"});
  EXPECT_TRUE(said.IsDone()) << said.code.status().ToString();
}

TEST_F(ChangedRunTest, FinetuningTakesEveryTensorOfTheSourceOrNone) {
  const auto finetune = [&](std::vector<std::string> set) {
    set.insert(set.end(), {"finetune=true", "lr=1e-3", "seq_length=16", "global_batch_size=8",
                           "train_iters=1", "data_path=" + In("data.jsonl").string()});
    TrainOptions options = GoOn(In("out"), 2, std::move(set));
    options.run.save = In("tuned").string();
    return Call(RunTrain, options);
  };
  const Said fewer = finetune({"num_experts=2", "moe_router_topk=1"});
  ASSERT_FALSE(fewer.code.ok());
  EXPECT_THAT(fewer.code.status().ToString(),
              HasSubstr("the run's model has no place for this tensor"));
  EXPECT_THAT(fewer.code.status().ToString(), HasSubstr("mlp.experts.linear_fc1.weight2"));
  EXPECT_THAT(fewer.code.status().ToString(),
              HasSubstr("mlp.router.weight: expected [2, 24], found [4, 24]"));
  const Said more = finetune({"num_layers=2"});
  ASSERT_FALSE(more.code.ok());
  EXPECT_THAT(more.code.status().ToString(), HasSubstr("a tensor of the run's model is missing"));
  EXPECT_THAT(more.code.status().ToString(), HasSubstr("decoder.layers.1.input_layernorm.weight"));
  const Said tied = finetune({"untie_embeddings_and_output_weights=false"});
  ASSERT_FALSE(tied.code.ok());
  EXPECT_THAT(tied.code.status().ToString(), HasSubstr("output_layer.weight"));
  const Said same = finetune({});
  EXPECT_TRUE(same.IsDone()) << same.code.status().ToString();
}

TEST_F(ChangedRunTest, SamplesOfOtherSequencesAreNotCountedOn) {
  const std::string more = In("more.jsonl").string();
  ASSERT_THAT(
      WriteSmallFile(PosixStorage(), more,
                     AsBytes(ReadSmallFile(PosixStorage(), In("data.jsonl"), 1 << 20).value() +
                             "{\"text\": \"five six seven eight\"}\n")),
      IsOk());
  for (const std::string& change : {std::string("seq_length=8"), std::string("seed=7"),
                                    std::string("shuffle=false"), "data_path=" + more}) {
    const Said said = GoOnWith({change});
    ASSERT_THAT(said.code, FailsWith(ErrorKind::kUsage)) << change;
    EXPECT_THAT(said.code.status().ToString(), HasSubstr("would skip or repeat some")) << change;
    EXPECT_THAT(said.code.status().ToString(), HasSubstr("restart_data=true"));
    EXPECT_EQ(CountCheckpoints(), 3U);
  }
  // The same data under another name are the same data.
  ASSERT_THAT(PosixStorage().Rename(In("data.jsonl"), In("moved.jsonl")), IsOk());
  const Said moved = GoOnWith({"data_path=" + In("moved.jsonl").string(), "train_iters=4"});
  EXPECT_TRUE(moved.IsDone()) << moved.code.status().ToString();
}

// Asked for once, it is not done a second time: the run has these data then.
TEST_F(ChangedRunTest, OtherDataBeginAtTheirFirstSampleWhereThatIsAskedFor) {
  const auto consumed = [&](const char* iteration) {
    TrainingState state = OpenTrainingState(PosixStorage(), In("out") / iteration, {}).value();
    return state.run.consumed_samples;
  };
  EXPECT_EQ(consumed("iter_0000003"), 24);
  const std::vector<std::string> set = {"seq_length=8", "restart_data=true"};
  for (const auto& [until, samples] : {std::pair(4, 8), std::pair(6, 24)}) {
    std::vector<std::string> more = set;
    more.push_back("train_iters=" + std::to_string(until));
    const Said said = GoOnWith(more);
    ASSERT_TRUE(said.IsDone()) << said.code.status().ToString();
    EXPECT_EQ(consumed(until == 4 ? "iter_0000004" : "iter_0000006"), samples);
  }
}

TEST_F(ResumeTest, StartsWhereThereIsNoCheckpointYet) {
  TrainOptions options = Options(1);
  options.run.load = options.run.save = In("out").string();
  const Said said = Call(RunTrain, options);
  ASSERT_TRUE(said.IsDone()) << said.code.status().ToString();
  EXPECT_THAT(said.err, HasSubstr("no checkpoint in "));
  const Said again = Call(RunTrain, options);
  EXPECT_THAT(again.err, HasSubstr("nothing to do: step 8 is done"));
  EXPECT_EQ(DigestOf(again), DigestOf(said));
}

TEST_F(ResumeTest, AMistypedLoadStartsNothing) {
  TrainOptions options = Options(1);
  options.run.load = In("mistyped").string();
  options.run.save = In("out").string();
  const Said trained = Call(RunTrain, options);
  ASSERT_THAT(trained.code, FailsWith(ErrorKind::kNotFound));
  EXPECT_THAT(trained.code.status().ToString(), HasSubstr("there is no checkpoint to load"));
  EXPECT_THAT(trained.code.status().ToString(), HasSubstr("mistyped"));
  EXPECT_EQ(PosixStorage().Stat(In("out")).value().type, FileType::kMissing);

  // Nor does it evaluate what `init` names, though the folder be that of a run to come.
  EvaluateOptions evaluate;
  evaluate.run.load = evaluate.run.save = In("mistyped").string();
  evaluate.run.init =
      std::string("hf:") + CKPT_SOURCE_DIR + "/tests/golden/hf/qwen3moe-norm-bf16/ckpt";
  evaluate.run.set = {"seq_length=8", "data_path=" + In("data.jsonl").string()};
  EXPECT_THAT(Call(RunEvaluate, evaluate).code, FailsWith(ErrorKind::kNotFound));

  // It is all that is said where the settings were to come from there.
  TrainOptions alone = GoOn(In("mistyped"), 1);
  alone.run.save.clear();
  const Said said = Call(RunTrain, alone);
  ASSERT_THAT(said.code, FailsWith(ErrorKind::kNotFound));
  EXPECT_EQ(said.code.status().problems().size(), 1U) << said.code.status().ToString();
}

TEST_F(ResumeTest, StartsNoSecondRunInTheFolderOfAnother) {
  TrainOptions options = Options(1);
  options.run.save = In("out").string();
  options.run.metrics = In("metrics.jsonl").string();
  ASSERT_TRUE(Call(RunTrain, options).IsDone());
  const auto metrics = Metrics(In("metrics.jsonl"));
  ASSERT_THAT(metrics, IsOk());
  const Said said = Call(RunTrain, options);
  EXPECT_THAT(said.code, testing::FailsWith(ErrorKind::kAlreadyExists));
  EXPECT_THAT(said.code.status().ToString(), HasSubstr("resume them with --load"));
  EXPECT_EQ(*Metrics(In("metrics.jsonl")), *metrics);
}

// Each save takes them from the one before, which is gone by the time of the next.
TEST_F(ResumeTest, KeepsTheModelsSideFilesWhenOldCheckpointsGo) {
  std::string tokens;
  for (int i = 0; i < 24; ++i) tokens += "{\"input_ids\": [1, 2, 3, 4, 5, 6, 7, 8, 9]}\n";
  ASSERT_THAT(WriteSmallFile(PosixStorage(), In("tokens.jsonl"), AsBytes(tokens)), IsOk());
  TrainOptions options;
  options.common.threads = 1;
  options.run.ranks = 2;
  options.run.save = In("out").string();
  options.run.init =
      std::string("hf:") + CKPT_SOURCE_DIR + "/tests/golden/hf/qwen3moe-norm-bf16/ckpt";
  options.run.set = {"seq_length=8", "train_iters=1", "data_path=" + In("tokens.jsonl").string()};
  ASSERT_TRUE(Call(RunTrain, options).IsDone());
  options.run.init.clear();
  options.run.load = In("out").string();
  for (const char* mode : {"async_save=false", "async_save=true"}) {
    SCOPED_TRACE(mode);
    options.run.set = {mode, "keep_checkpoints=1", "save_interval=1",
                       std::string(mode).ends_with("true") ? "train_iters=7" : "train_iters=4"};
    const Said said = Call(RunTrain, options);
    ASSERT_TRUE(said.IsDone()) << said.code.status().ToString() << said.err;
  }
  const auto left = PosixStorage().List(In("out"));
  ASSERT_THAT(left, IsOk());
  EXPECT_EQ(left->size(), 2U);  // and the tracker
  const auto config = PosixStorage().Stat(In("out") / "iter_0000007" / "hf_assets" / "config.json");
  ASSERT_THAT(config, IsOk());
  EXPECT_EQ(config->type, FileType::kRegular);
}

TEST_F(ResumeTest, GivenSettingsGoBeforeStoredOnes) {
  TrainOptions first = Options(1, {"train_iters=2"});
  first.run.save = In("out").string();
  ASSERT_TRUE(Call(RunTrain, first).IsDone());
  TrainOptions shown = GoOn(In("out"), 1, {"lr=0.5"});
  shown.print_config = true;
  const Said said = Call(RunTrain, shown);
  ASSERT_TRUE(said.IsDone()) << said.code.status().ToString();
  EXPECT_THAT(said.out, HasSubstr("\nlr: 0.5\n"));
  EXPECT_THAT(said.out, HasSubstr("\nhidden_size: 24\n"));
  EXPECT_THAT(said.out, HasSubstr("\ntrain_iters: 2\n"));
}

TEST_F(ResumeTest, SaysThatInitIsNotUsedBesideALoadThatHoldsACheckpoint) {
  TrainOptions first = Options(1, {"train_iters=1"});
  first.run.save = In("out").string();
  ASSERT_TRUE(Call(RunTrain, first).IsDone());
  const std::string says = "init names another/model, which is not used: the weights are those of";
  TrainOptions elsewhere = GoOn(In("out"), 1, {"train_iters=2"});
  elsewhere.run.init = "hf:another/model";
  elsewhere.run.save = In("other").string();
  EXPECT_THAT(Call(RunTrain, elsewhere).err, HasSubstr(says));
  EvaluateOptions evaluate;
  evaluate.run.init = elsewhere.run.init;
  evaluate.run.load = In("out").string();
  evaluate.run.set = {"data_path=" + In("data.jsonl").string()};
  EXPECT_THAT(Call(RunEvaluate, evaluate).err, HasSubstr(says));
  // One command both starts and resumes a run.
  TrainOptions again = GoOn(In("out"), 1, {"train_iters=2"});
  again.run.init = elsewhere.run.init;
  again.run.save = again.run.load;
  const Said said = Call(RunTrain, again);
  ASSERT_TRUE(said.IsDone()) << said.code.status().ToString();
  EXPECT_THAT(said.err, Not(HasSubstr("is not used")));
}

}  // namespace
}  // namespace ckpt::train

// `train` on the model of a Hugging Face repository: every weight of it is used,
// or the run is refused.
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/matchers.h"
#include "tests/tools/ckpt-train/small_training.h"
#include "tools/ckpt-train/cmd_evaluate.h"
#include "tools/ckpt-train/cmd_generate.h"
#include "tools/ckpt-train/cmd_train.h"
#include "trainer/run/data_settings.h"

namespace ckpt::train {
namespace {

using testing::Call;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::Said;

constexpr char kHfModel[] = "hf:" CKPT_SOURCE_DIR "/tests/golden/hf/qwen3moe-norm-bf16/ckpt";

class HfTrainTest : public testing::SmallTraining {
 protected:
  // Trains the model for a step on data of its own tokens.
  Said TrainModel(std::vector<std::string> set, const std::string& data) {
    TrainOptions options;
    options.common.threads = 1;
    options.run.ranks = 2;
    options.run.init = kHfModel;
    options.run.save = In("out").string();
    options.run.set = std::move(set);
    options.run.set.insert(options.run.set.end(),
                           {"seq_length=8", "train_iters=1", "data_path=" + data});
    return Call(RunTrain, options);
  }

  std::string Tokens(std::string_view line = R"({"input_ids": [1, 2, 3, 4, 5, 6, 7, 8, 9]})") {
    std::string lines;
    for (int i = 0; i < 8; ++i) lines += std::string(line) + "\n";
    EXPECT_THAT(PosixStorage().RemoveAll(In("tokens.jsonl")), IsOk());
    EXPECT_THAT(WriteSmallFile(PosixStorage(), In("tokens.jsonl"), AsBytes(lines)), IsOk());
    return In("tokens.jsonl").string();
  }
};

TEST_F(HfTrainTest, TakesEveryWeightOfTheModelOrNone) {
  struct Change {
    std::vector<std::string> set;
    const char* says;
  };
  const std::vector<Change> changes = {
      {{"num_layers=1", "moe_layer_freq=1"}, "no place for this tensor"},
      {{"num_layers=3", "moe_layer_freq=1"}, "a tensor of the run's model is missing"},
      {{"num_experts=4"}, "mlp.experts.linear_fc1.weight4"},
      {{"qk_layernorm=false"}, "self_attention.k_layernorm.weight"},
      {{"vocab_size=128"}, "word_embeddings.weight: expected [128, 40], found [160, 40]"},
      {{"moe_ffn_hidden_size=16"}, "the tensor has a different shape in the run's model"},
      {{"untie_embeddings_and_output_weights=false"}, "output_layer.weight: found [160, 40]"}};
  for (const Change& change : changes) {
    SCOPED_TRACE(change.set.front());
    const Said said = TrainModel(change.set, Tokens());
    ASSERT_FALSE(said.code.ok());
    EXPECT_THAT(said.code.status().ToString(), HasSubstr(change.says));
    EXPECT_THAT(said.code.status().ToString(), HasSubstr("qwen3moe-norm-bf16"));
    EXPECT_THAT(said.code.status().ToString(),
                HasSubstr("settings that change the source's model"));
    EXPECT_EQ(PosixStorage().Stat(In("out"))->type, FileType::kMissing);
  }
  // Rows beside the vocabulary are the run's own: zeros, whatever the model has.
  EXPECT_TRUE(TrainModel({"padded_vocab_size=192"}, Tokens()).IsDone());
  EXPECT_THAT(PosixStorage().RemoveAll(In("out")), IsOk());
  const Said whole = TrainModel({}, Tokens());
  EXPECT_TRUE(whole.IsDone()) << whole.code.status().ToString();
}

// The model of a repository of its own, with `from` in its configuration replaced.
class OwnRepositoryTest : public HfTrainTest {
 protected:
  void Copy(const std::string& name, const Path& to, std::string_view from, std::string_view by) {
    const Path golden = Path(CKPT_SOURCE_DIR) / "tests/golden/hf" / name / "ckpt";
    ASSERT_THAT(PosixStorage().MakeDirectories(to), IsOk());
    const auto files = PosixStorage().List(golden);
    ASSERT_THAT(files, IsOk());
    for (const DirectoryEntry& entry : *files) {
      const std::string& file = entry.name;
      auto content = ReadSmallFile(PosixStorage(), golden / file, 16 * kMiB);
      ASSERT_THAT(content, IsOk());
      if (const std::size_t at = content->find(from); at != std::string::npos) {
        content->replace(at, from.size(), by);
      }
      ASSERT_THAT(WriteSmallFile(PosixStorage(), to / file, AsBytes(*content)), IsOk());
    }
  }

  Said Evaluate(const Path& repository) {
    EvaluateOptions options;
    options.common.threads = 1;
    options.run.init = "hf:" + repository.string();
    options.run.set = {"seq_length=8", "data_path=" + Tokens()};
    return Call(RunEvaluate, options);
  }
};

// Both matrices are stored and differ, so that leaving one of them out would change the model in
// silence.
TEST_F(OwnRepositoryTest, TiedWeightsThatDifferAreRefused) {
  Copy("llama-untied-bf16", In("tied"), "\"tie_word_embeddings\": false",
       "\"tie_word_embeddings\": true");
  const Said said = Evaluate(In("tied"));
  ASSERT_THAT(said.code, FailsWith(ErrorKind::kValueMismatch));
  EXPECT_EQ(said.code.status().first().tensor, "lm_head.weight");
}

TEST_F(OwnRepositoryTest, TheHubsCacheStandsForItsMainRevision) {
  const Path cache = In("models--some--model");
  Copy("llama-untied-bf16", cache / "snapshots" / "abc", "nothing of this", "");
  ASSERT_THAT(PosixStorage().MakeDirectories(cache / "refs"), IsOk());
  ASSERT_THAT(
      WriteSmallFile(PosixStorage(), cache / "refs" / "main", AsBytes(std::string_view("abc"))),
      IsOk());
  const Said said = Evaluate(cache);
  EXPECT_TRUE(said.IsDone()) << said.code.status().ToString();
  const Said none = Evaluate(In("out"));
  EXPECT_THAT(none.code, FailsWith(ErrorKind::kNotFound));
}

TEST_F(HfTrainTest, RefusesTextForAModelWithATokenizerOfItsOwn) {
  for (const char* line : {R"({"text": "one two three four five"})",
                           R"({"prompt": "one two", "completion": " three"})",
                           R"({"messages": [{"role": "user", "content": "one"},)"
                           R"( {"role": "assistant", "content": "two"}]})"}) {
    const Said trained = TrainModel({}, Tokens(line));
    ASSERT_THAT(trained.code, FailsWith(ErrorKind::kUsage)) << line;
    EXPECT_THAT(trained.code.status().ToString(), HasSubstr("another vocabulary")) << line;
    EXPECT_THAT(trained.code.status().ToString(), HasSubstr("input_ids")) << line;
  }
  GenerateOptions generate;
  generate.run.init = kHfModel;
  generate.prompt = "Hi";
  const Said generated = Call(RunGenerate, generate);
  ASSERT_THAT(generated.code, FailsWith(ErrorKind::kUsage));
  EXPECT_THAT(generated.code.status().ToString(), HasSubstr("--prompt-ids"));
}

TEST_F(HfTrainTest, TextIsNoBytesForAModelThatCameWithATokenizer) {
  EXPECT_TRUE(FindTokenizer(PosixStorage(), In("model"))->empty());
  ASSERT_THAT(PosixStorage().MakeDirectories(In("model")), IsOk());
  ASSERT_THAT(WriteSmallFile(PosixStorage(), In("model") / "tokenizer.json", AsBytes("{}")),
              IsOk());
  const auto tokenizer = FindTokenizer(PosixStorage(), In("model"));
  ASSERT_THAT(tokenizer, IsOk());
  EXPECT_EQ(*tokenizer, In("model") / "tokenizer.json");
  // Its vocabulary is as large as that of bytes, by chance.
  trainer::TrainConfig config;
  config.seq_length = 16;
  config.model.vocab_size = 258;
  EXPECT_THAT(OpenData(PosixStorage(), In("data.jsonl"), {}, config), IsOk());
  DataSettings settings;
  settings.tokenizer = *tokenizer;
  const auto refused = OpenData(PosixStorage(), In("data.jsonl"), settings, config);
  ASSERT_THAT(refused.status(), FailsWith(ErrorKind::kUsage));
  EXPECT_THAT(refused.status().ToString(), HasSubstr("has its own tokenizer"));
}

TEST_F(HfTrainTest, SaysWhatALoadIsThatHoldsNoRun) {
  struct Case {
    const char* source;
    std::string is;
    std::string takes;
  };
  const std::string goldens = CKPT_SOURCE_DIR "/tests/golden";
  const std::vector<Case> cases = {
      {"/hf/qwen3moe-norm-bf16/ckpt", "found hf: the checkpoint stores no training run",
       "--init hf:"},
      {"/torch_dist/dense_tp1_core012/ckpt",
       "found torch_dist: the checkpoint stores no training run", "--set finetune=true"},
      {"/hf/llama-tied-fp32/ckpt/model.safetensors",
       "found safetensors: the checkpoint stores no training run", "--set finetune=true"}};
  for (const Case& one : cases) {
    TrainOptions options;
    options.run.load = goldens + one.source;
    options.run.set = {"seq_length=8", "train_iters=1", "data_path=" + Tokens()};
    const Said said = Call(RunTrain, options);
    ASSERT_THAT(said.code, FailsWith(ErrorKind::kMissing)) << one.source;
    const std::string text = said.code.status().ToString();
    EXPECT_THAT(text, HasSubstr("there are weights, but no run to resume")) << one.source;
    EXPECT_THAT(text, HasSubstr(one.is)) << one.source;
    EXPECT_THAT(text, HasSubstr(one.takes)) << one.source;
  }
}

TEST_F(HfTrainTest, SaysHowManyExamplesWereTruncated) {
  const Said said = TrainModel({"long_examples=truncate"},
                               Tokens(R"({"input_ids": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],)"
                                      R"( "loss_mask": [0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1]})"));
  ASSERT_TRUE(said.IsDone()) << said.code.status().ToString();
  EXPECT_THAT(said.err, HasSubstr("8 of 8 examples are longer than a sequence and were truncated"));
  EvaluateOptions evaluate;
  evaluate.run.init = kHfModel;
  evaluate.run.set = {"seq_length=8", "eval_iters=1", "long_examples=truncate",
                      "data_path=" + In("tokens.jsonl").string()};
  EXPECT_THAT(Call(RunEvaluate, evaluate).err, HasSubstr("8 of 8 examples are longer"));
  const Said none = TrainModel({"long_examples=truncate"},
                               Tokens(R"({"input_ids": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],)"
                                      R"( "loss_mask": [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]})"));
  ASSERT_THAT(none.code, FailsWith(ErrorKind::kUsage));
  EXPECT_THAT(none.code.status().ToString(), HasSubstr("no token of the file would be learned"));
}

// A source says more than the run needs (how its weights were drawn once): said again, that is not
// news.
TEST_F(HfTrainTest, WhatPrintConfigPrintsOfAModelIsTaken) {
  const Path source = std::string(kHfModel).substr(3);
  std::string json = ReadSmallFile(PosixStorage(), source / "config.json", 1 << 20).value();
  json.replace(json.find("0.02"), 4, "0.03");  // initializer_range
  ASSERT_THAT(PosixStorage().MakeDirectories(In("model")), IsOk());
  ASSERT_THAT(WriteSmallFile(PosixStorage(), In("model") / "config.json", AsBytes(json)), IsOk());

  TrainOptions options;
  options.run.init = "hf:" + In("model").string();
  options.run.ranks = 1;
  options.run.set = {"seq_length=8", "train_iters=1"};
  options.print_config = true;
  const Said said = Call(RunTrain, options);
  ASSERT_TRUE(said.IsDone()) << said.code.status().ToString();
  EXPECT_THAT(said.out, HasSubstr("\ninit_method_std: 0.03\n"));
  ASSERT_THAT(WriteSmallFile(PosixStorage(), In("run.yaml"), AsBytes(said.out)), IsOk());

  TrainOptions again;
  again.run.config = In("run.yaml").string();
  again.run.ranks = 1;
  again.run.set = {"data_path=" + In("absent").string()};
  // Everything is in order, but for what it would train on.
  EXPECT_THAT(Call(RunTrain, again).code, FailsWith(ErrorKind::kNotFound));
  again.run.set.emplace_back("init_method_std=0.5");
  const Said drawn = Call(RunTrain, again);
  ASSERT_THAT(drawn.code, FailsWith(ErrorKind::kUsage));
  EXPECT_THAT(drawn.code.status().ToString(),
              HasSubstr("setting init_method_std does nothing where init names weights"));
}

}  // namespace
}  // namespace ckpt::train

// A model is the same wherever it is loaded from: its repository, or a conversion of it.
#include <algorithm>
#include <string>
#include <vector>

#include <boost/filesystem/operations.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "converters/verbs/convert.h"
#include "core/json/json_reader.h"
#include "formats/registry/registry.h"
#include "tests/testing/golden.h"
#include "tests/testing/matchers.h"
#include "tests/tools/ckpt-train/small_training.h"
#include "tools/ckpt-train/cmd_evaluate.h"
#include "tools/ckpt-train/cmd_generate.h"

namespace ckpt::train {
namespace {

using testing::Call;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::Said;

struct Edit {
  std::string key;
  std::string value;  // as JSON
};

struct ConvertedCase {
  std::string name;
  std::string golden;
  std::vector<Edit> edits;  // of config.json
};

void PrintTo(const ConvertedCase& c, std::ostream* out) { *out << c.name; }

// The text with the value of a top-level `edit.key` in place, or with the key in front.
std::string Edited(std::string json, const Edit& edit) {
  const std::string quoted = "\n  \"" + edit.key + "\": ";
  const std::size_t at = json.find(quoted);
  if (at == std::string::npos) return "{" + quoted + edit.value + "," + json.substr(1);
  const std::size_t begin = at + quoted.size();
  const std::size_t end =
      json[begin] == '[' ? json.find(']', begin) + 1 : json.find_first_of(",\n", begin);
  return json.replace(begin, end - begin, edit.value);
}

class ConvertedModelTest : public testing::SmallTraining {
 protected:
  void SetUp() override {
    std::string lines;
    for (int i = 0; i < 12; ++i) {
      std::string tokens;
      for (int t = 0; t < 33; ++t) tokens += (t > 0 ? ", " : "") + std::to_string((7 * t + i) % 97);
      lines += "{\"input_ids\": [" + tokens + "]}\n";
    }
    ASSERT_THAT(WriteSmallFile(PosixStorage(), In("tokens.jsonl"), AsBytes(lines)), IsOk());
  }

  // A repository in the folder "model".
  void MakeModel(const ConvertedCase& c) const {
    const Path golden = testing::GoldenDir() / "hf" / c.golden / "ckpt";
    boost::filesystem::create_directories(In("model"));
    for (const auto& entry : boost::filesystem::directory_iterator(golden)) {
      boost::filesystem::copy_file(entry.path(), In("model") / entry.path().filename());
    }
    std::string json = ReadSmallFile(PosixStorage(), golden / "config.json", 1 << 20).value();
    for (const Edit& edit : c.edits) json = Edited(std::move(json), edit);
    ASSERT_THAT(PosixStorage().RemoveAll(In("model") / "config.json"), IsOk());
    ASSERT_THAT(WriteSmallFile(PosixStorage(), In("model") / "config.json", AsBytes(json)), IsOk());
  }

  // Into the folder "fsdp".
  ConvertReport ConvertModel() const {
    ConvertOptions options;
    options.source = In("model");
    options.target = In("fsdp");
    options.to.container = *FindFormat("fsdp_dtensor");
    const auto prepared = PrepareConversion(PosixStorage(), options);
    EXPECT_THAT(prepared, IsOk());
    if (!prepared.ok()) return {};
    const auto report = RunConversion(PosixStorage(), *prepared, options);
    EXPECT_THAT(report, IsOk());
    return report.ok() ? *report : ConvertReport();
  }

  [[nodiscard]] RunOptions FromRepository() const {
    RunOptions run = Batch();
    run.init = "hf:" + In("model").string();
    return run;
  }
  [[nodiscard]] RunOptions FromConversion() const {
    RunOptions run = Batch();
    run.load = In("fsdp").string();
    run.set.emplace_back("finetune=true");
    return run;
  }

  static Said Evaluate(const RunOptions& run) {
    EvaluateOptions options;
    options.common.threads = 1;
    options.common.json = true;
    options.run = run;
    return Call(RunEvaluate, options);
  }
  // Bit for bit.
  static double LossOf(const Said& said) {
    EXPECT_TRUE(said.IsDone()) << said.code.status().ToString();
    if (!said.IsDone()) return 0;
    const auto document = JsonDocument::Parse(said.out, "answer");
    return document->root().At("loss").value().Double().value();
  }
  static TrainOptions TrainWith(const RunOptions& run) {
    TrainOptions options;
    options.common.threads = 1;
    options.run = run;
    options.print_state_digest = true;
    return options;
  }

 private:
  [[nodiscard]] RunOptions Batch() const {
    RunOptions run;
    run.ranks = 1;
    run.device = "cpu";  // also where there is a GPU
    const std::string tokens = In("tokens.jsonl").string();
    run.set = {"data_path=" + tokens, "valid_data_path=" + tokens, "eval_iters=2",
               "seq_length=16",       "global_batch_size=4",       "lr=1e-3"};
    return run;
  }
};

// Published models as they are, then with options that Megatron has none for.
std::vector<ConvertedCase> Models() {
  std::vector<ConvertedCase> models;
  for (const std::string& golden : testing::TrainedModels()) {
    std::string name = golden;
    std::replace(name.begin(), name.end(), '-', '_');
    models.push_back({name, golden, {}});
  }
  for (const ConvertedCase& edited :
       {ConvertedCase{"WindowsOfLaterLayers",
                      "qwen2-window-fp32",
                      {{"layer_types", "null"}, {"max_window_layers", "2"}}},
        ConvertedCase{"GroupsByTheirBest", "deepseekv2-group-bf16", {{"num_experts_per_tok", "4"}}},
        ConvertedCase{"GroupsByThreeExperts",
                      "deepseekv3-yarn-bf16",
                      {{"topk_group", "1"}, {"num_experts_per_tok", "2"}}},
        ConvertedCase{
            "HalvesAreNoPairs", "deepseekv3-noqlora-bf16", {{"rope_interleave", "false"}}},
        ConvertedCase{"NormsOfLatents", "deepseekv3-yarn-bf16", {{"rms_norm_eps", "0.01"}}}}) {
    const bool is_there =
        std::any_of(models.begin(), models.end(),
                    [&](const ConvertedCase& model) { return model.golden == edited.golden; });
    if (is_there) models.push_back(edited);
  }
  return models;
}

class SameModelTest : public ConvertedModelTest,
                      public ::testing::WithParamInterface<ConvertedCase> {};

TEST_P(SameModelTest, HasTheSameLossFromRepositoryAndConversion) {
  MakeModel(GetParam());
  ConvertModel();
  EXPECT_EQ(LossOf(Evaluate(FromConversion())), LossOf(Evaluate(FromRepository())));
}

INSTANTIATE_TEST_SUITE_P(Golden, SameModelTest, ::testing::ValuesIn(Models()),
                         [](const auto& test) { return test.param.name; });

// No run of it ever scaled a loss.
TEST_F(ConvertedModelTest, OfFloat16IsTrainedAndGoesOnAsFromTheRepository) {
  MakeModel({"", "llama-bias-fp16", {}});
  ConvertModel();
  std::vector<std::string> digests;
  for (RunOptions run : {FromRepository(), FromConversion()}) {
    run.save = In("run" + std::to_string(digests.size())).string();
    run.set.emplace_back("train_iters=2");
    const Said first = Call(RunTrain, TrainWith(run));
    ASSERT_TRUE(first.IsDone()) << first.code.status().ToString();
    RunOptions on;
    on.ranks = 1;
    on.device = run.device;
    on.load = on.save = run.save;
    on.set = {"train_iters=4"};
    const Said second = Call(RunTrain, TrainWith(on));
    ASSERT_TRUE(second.IsDone()) << second.code.status().ToString();
    digests.push_back(second.out.substr(second.out.find("state-digest")));
  }
  EXPECT_EQ(digests[0], digests[1]);
}

struct RefusedCase {
  Edit edit;
  std::string reason;
};

void PrintTo(const RefusedCase& c, std::ostream* out) { *out << c.edit.key; }

class RefusedModelTest : public ConvertedModelTest,
                         public ::testing::WithParamInterface<RefusedCase> {};

TEST_P(RefusedModelTest, IsRefusedByEveryVerbForTheReasonThatTheConversionWarnsOf) {
  const auto& [edit, reason] = GetParam();
  MakeModel({"", "llama-tied-fp32", {edit}});
  const ConvertReport report = ConvertModel();
  ASSERT_EQ(report.warnings.size(), 1U);
  EXPECT_THAT(report.warnings[0].message, HasSubstr(reason));

  for (const RunOptions& run : {FromRepository(), FromConversion()}) {
    GenerateOptions generate;
    generate.common.threads = 1;
    generate.run = run;
    generate.prompt = "one";
    TrainOptions train = TrainWith(run);
    train.run.set.emplace_back("train_iters=1");
    for (const Said& said : {Evaluate(run), Call(RunTrain, train), Call(RunGenerate, generate)}) {
      EXPECT_THAT(said.code.status(), FailsWith(ErrorKind::kUnsupported));
      EXPECT_THAT(said.code.status().ToString(), HasSubstr(reason));
    }
  }
  EXPECT_THAT(Evaluate(FromConversion()).code.status().ToString(), HasSubstr(In("fsdp").string()));
}

INSTANTIATE_TEST_SUITE_P(
    Options, RefusedModelTest,
    ::testing::Values(RefusedCase{{"attention_dropout", "0.5"}, "attention has dropout"},
                      RefusedCase{{"partial_rotary_factor", "0.5"},
                                  "partial_rotary_factor rotates a part of a head"}),
    [](const auto& test) { return test.param.edit.key; });

}  // namespace
}  // namespace ckpt::train

// `train`: it learns, tells what it does, and ends in order whatever happens.
#include <algorithm>
#include <cmath>
#include <csignal>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/filesystem/operations.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "converters/verbs/training_state.h"
#include "core/json/json_reader.h"
#include "tests/testing/fault_storage.h"
#include "tests/testing/matchers.h"
#include "tests/tools/ckpt-train/small_training.h"
#include "tools/ckpt-train/cmd_evaluate.h"
#include "tools/ckpt-train/cmd_generate.h"
#include "tools/ckpt-train/cmd_train.h"

namespace ckpt::train {
namespace {

using testing::Call;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;
using ::testing::Not;
using testing::Said;

using TrainTest = testing::SmallTraining;

GenerateOptions GenerateFrom(const Path& load, int ranks, std::string prompt) {
  GenerateOptions options;
  options.common.threads = 1;
  options.run.ranks = ranks;
  options.run.device = "cpu";  // also where there is a GPU
  options.run.load = load.string();
  options.prompt = std::move(prompt);
  return options;
}

double Number(const std::string& json, const char* key) {
  const auto document = JsonDocument::Parse(json, "answer");
  EXPECT_THAT(document, IsOk()) << json;
  return document->root().At(key).value().Double().value();
}

TEST_F(TrainTest, LearnsToContinueAPattern) {
  TrainOptions options =
      Options(2, {"train_iters=200", "expert_model_parallel_size=2", "eval_iters=2",
                  "valid_data_path=" + In("data.jsonl").string()});
  options.run.save = In("out").string();
  options.common.json = true;
  const Said said = Call(RunTrain, options);
  ASSERT_TRUE(said.IsDone()) << said.code.status().ToString();
  const std::string last_step = said.out.substr(said.out.find("{\"step\":200,"));
  const double eval_loss = Number(last_step.substr(0, last_step.find('\n')), "eval_loss");
  EXPECT_LT(eval_loss, 0.5) << "at random it would be 5.5";

  EvaluateOptions evaluate;
  evaluate.common = options.common;
  evaluate.run.ranks = 1;
  evaluate.run.device = options.run.device;
  evaluate.run.load = options.run.save;
  evaluate.run.set = {"eval_iters=2"};
  const Said evaluated = Call(RunEvaluate, evaluate);
  ASSERT_TRUE(evaluated.IsDone()) << evaluated.code.status().ToString();
  EXPECT_NEAR(Number(evaluated.out, "loss"), eval_loss, 1e-5 * eval_loss);

  for (const int ranks : {1, 2}) {
    GenerateOptions generate = GenerateFrom(In("out"), ranks, "one two three four one ");
    generate.tokens = 14;
    const Said generated = Call(RunGenerate, generate);
    ASSERT_TRUE(generated.IsDone()) << generated.code.status().ToString();
    EXPECT_EQ(generated.out, "one two three four one two three four\n") << ranks << " ranks";
  }
}

TEST_F(TrainTest, EndsWithALedgerOfItsSteps) {
  for (const int ranks : {1, 2}) {
    TrainOptions options =
        Options(ranks, {"overlap_param_gather=true", "overlap_grad_reduce=true"});
    options.common.json = true;
    options.print_state_digest = false;
    options.ledger = true;
    const Said said = Call(RunTrain, options);
    ASSERT_TRUE(said.IsDone()) << said.code.status().ToString();
    const std::string last = said.out.substr(said.out.rfind('\n', said.out.size() - 2) + 1);
    const nlohmann::json ledger = nlohmann::json::parse(last)["ledger"];
    double forwards = 0;
    for (const nlohmann::json& line : ledger["lines"]) {
      if (line["operation"] == "Attention") forwards += line["calls"].get<double>();
      EXPECT_GT(line["ms"].get<double>(), 0);
    }
    // One layer; a rank has 8 / ranks sequences, one in a micro-batch.
    EXPECT_DOUBLE_EQ(forwards, 8.0 / ranks);
  }
  TrainOptions options = Options(1, {"train_iters=2"});
  options.ledger = true;
  EXPECT_THAT(Call(RunTrain, options).code.status().ToString(),
              HasSubstr("the run has too few steps for a ledger: expected at least 3, found 2"));
}

TEST_F(TrainTest, ReportsEverythingThatIsWrongAtOnce) {
  const Said said = Call(RunTrain, Options(2, {"data_path=\"\"", "train_iters=0", "lerning_rate=1",
                                               "data_kind=parquet", "save_interval=-1"}));
  ASSERT_THAT(said.code.status(), FailsWith(ErrorKind::kUsage));
  const std::string problems = said.code.status().ToString();
  for (const char* problem :
       {"setting train_iters is missing", "setting data_path is missing",
        "there is no setting lerning_rate", "setting data_kind has an unknown value",
        "setting save_interval is not a valid number"}) {
    EXPECT_THAT(problems, HasSubstr(problem));
  }
}

TEST_F(TrainTest, SaysThatThereIsTooLittleData) {
  const Said said = Call(RunTrain, Options(1, {"seq_length=100000"}));
  EXPECT_THAT(said.code.status(), FailsWith(ErrorKind::kUsage));
  EXPECT_THAT(said.code.status().ToString(), HasSubstr("data.jsonl"));
  EXPECT_THAT(said.code.status().ToString(), HasSubstr("do not fill one sequence"));
}

TEST_F(TrainTest, KeepsTheLastGoodCheckpointWhenNumbersRunAway) {
  TrainOptions options = Options(
      2, {"lr=1e30", "clip_grad=0", "save_interval=1", "save_proof=false", "optimizer=sgd"});
  options.run.save = In("out").string();
  const Said said = Call(RunTrain, options);
  ASSERT_THAT(said.code.status(), FailsWith(ErrorKind::kValueMismatch));
  EXPECT_EQ(cli::ExitCodeOf(said.code.status()), cli::ExitCode::kFailed);
  EXPECT_THAT(said.code.status().ToString(), HasSubstr("not finite in step 2"));
  EXPECT_THAT(said.code.status().ToString(), HasSubstr("global samples 8 to 15"));
  const auto tracker =
      ReadSmallFile(PosixStorage(), In("out") / "latest_checkpointed_iteration.txt", 100);
  ASSERT_THAT(tracker, IsOk());
  EXPECT_EQ(std::stoi(*tracker), 1);
}

TEST_F(TrainTest, AnEvaluationThatRunsAwayNamesStepAndSamples) {
  const Said said =
      Call(RunTrain, Options(2, {"lr=1e30", "weight_decay=1e10", "optimizer=sgd", "eval_interval=1",
                                 "eval_iters=2", "valid_data_path=" + In("data.jsonl").string()}));
  ASSERT_THAT(said.code.status(), FailsWith(ErrorKind::kValueMismatch));
  EXPECT_THAT(said.code.status().ToString(), HasSubstr("evaluating global samples 0 to 7"));
  EXPECT_THAT(said.code.status().ToString(), HasSubstr("evaluating after step 1"));
}

// Sends SIGTERM when the line of step 3 is written.
class SignallingOutput final : public cli::TextOutput {
 public:
  void Write(std::string_view text) override {
    if (text.starts_with("step 3/")) std::raise(SIGTERM);
  }
  Status Flush() override { return OkStatus(); }
};

// The ranks agree to stop by a sum of the next step, so that no step waits for it.
TEST_F(TrainTest, ASignalSavesAndEndsTheRun) {
  TrainOptions options = Options(2, {"log_interval=1", "train_iters=100000"});
  options.run.save = In("out").string();
  SignallingOutput out;
  cli::StringOutput err;
  cli::Streams streams = {.out = out, .err = err};
  const Result<cli::ExitCode> code = RunTrain(options, PosixStorage(), streams);
  ASSERT_THAT(code, IsOk());
  EXPECT_EQ(*code, cli::ExitCode::kDone);
  EXPECT_THAT(err.text(), HasSubstr("saved iteration 4 "));
  EXPECT_THAT(err.text(), HasSubstr("stopped after step 4"));
  OpenModelOptions padded;
  padded.with_vocabulary_padding = true;
  const auto saved = OpenTrainingState(PosixStorage(), In("out") / "iter_0000004", padded);
  ASSERT_THAT(saved, IsOk());
  EXPECT_FALSE(saved->facts.next_loss) << "a proof takes half a step";
}

TEST_F(TrainTest, AFolderThatCannotBeWrittenEndsTheRunBeforeItsFirstStep) {
  TrainOptions options = Options(2, {"log_interval=1"});
  options.run.save = (In("data.jsonl") / "out").string();  // below a file
  options.run.metrics = In("metrics.jsonl").string();
  const Said said = Call(RunTrain, options);
  ASSERT_FALSE(said.code.ok());
  EXPECT_THAT(said.code.status().ToString(), HasSubstr("data.jsonl/out"));
  EXPECT_EQ(said.out, "");
}

TEST_F(TrainTest, ADiskThatTakesNothingEndsTheRunBeforeItsFirstStep) {
  TrainOptions options = Options(2, {"log_interval=1"});
  options.run.save = In("out").string();
  testing::FaultStorage full(PosixStorage(), /*fail_at=*/3, ErrorKind::kNoSpace);
  cli::StringOutput out;
  cli::StringOutput err;
  cli::Streams streams = {.out = out, .err = err};
  EXPECT_THAT(RunTrain(options, full, streams).status(), FailsWith(ErrorKind::kNoSpace));
  EXPECT_EQ(out.text(), "");
}

TEST_F(TrainTest, AFailedSaveSaysWhatIsLeftAndHowToResume) {
  TrainOptions options = Options(1, {"train_iters=4", "save_interval=2", "save_proof=false"});
  options.run.save = In("out").string();
  testing::FaultStorage counts(PosixStorage(), -1);
  cli::StringOutput out;
  cli::StringOutput err;
  cli::Streams streams = {.out = out, .err = err};
  ASSERT_THAT(RunTrain(options, counts, streams), IsOk());

  // Somewhere in the second of two saves that are alike.
  options.run.save = In("full").string();
  testing::FaultStorage full(PosixStorage(), counts.calls() * 3 / 4, ErrorKind::kNoSpace);
  const Status failure = RunTrain(options, full, streams).status();
  ASSERT_THAT(failure, FailsWith(ErrorKind::kNoSpace));
  const std::string hint = failure.first().hint;
  EXPECT_THAT(hint, HasSubstr("full/iter_0000004.ckptkit-partial holds a part of it"));
  EXPECT_THAT(hint, HasSubstr("full/iter_0000002 is complete: make room (a save takes "));
  EXPECT_THAT(hint, HasSubstr("resume it with --load " + options.run.save));

  options.run.load = options.run.save;
  EXPECT_TRUE(Call(RunTrain, options).IsDone()) << "as the hint says";
}

TEST_F(TrainTest, NothingIsLeftOfAFolderThatARefusedRunMade) {
  TrainOptions options = Options(2, {"save_format=hf"});  // of no config.json
  options.run.save = (In("new") / "out").string();
  ASSERT_THAT(Call(RunTrain, options).code.status(), FailsWith(ErrorKind::kNotFound));
  EXPECT_EQ(PosixStorage().Stat(In("new"))->type, FileType::kMissing);
}

TEST_F(TrainTest, SaysWhatLengthsPastTheRunMean) {
  const Said said =
      Call(RunTrain, Options(1, {"train_iters=2", "lr_warmup_iters=10", "exit_interval=5"}));
  ASSERT_TRUE(said.IsDone()) << said.code.status().ToString();
  EXPECT_THAT(said.err, HasSubstr("lr_warmup_iters=10 is longer than the run of 2 steps"));
  EXPECT_THAT(said.err, HasSubstr("exit_interval=5 is past the run of 2 steps"));
  const Said silent = Call(RunTrain, Options(1, {"train_iters=2", "exit_interval=2"}));
  EXPECT_THAT(silent.err, Not(HasSubstr("past the run")));
}

TEST_F(TrainTest, WhatNoSaveCanHoldEndsTheRunBeforeItsFirstStep) {
  TrainOptions options = Options(2, {"log_interval=1", "save_format=hf"});  // of no config.json
  options.run.save = In("out").string();
  const Said said = Call(RunTrain, options);
  EXPECT_THAT(said.code.status(), FailsWith(ErrorKind::kNotFound));
  EXPECT_THAT(said.code.status().ToString(), HasSubstr("while planning the first checkpoint"));
  EXPECT_EQ(said.out, "");
}

TEST_F(TrainTest, AModelWithLayerNormIsSavedAndGoesOn) {
  for (const char* format : {"fsdp_dtensor", "torch_dist"}) {
    SCOPED_TRACE(format);
    TrainOptions options = Options(2, {"log_interval=1", "train_iters=4", "normalization=LayerNorm",
                                       std::string("save_format=") + format});
    options.run.save = In(format).string();
    options.run.set.emplace_back("exit_interval=2");
    const Said first = Call(RunTrain, options);
    ASSERT_TRUE(first.IsDone()) << first.code.status().ToString();
    TrainOptions rest;
    rest.common = options.common;
    rest.run.ranks = 1;
    rest.run.device = options.run.device;
    rest.run.load = options.run.save;
    rest.run.set = {"prove=true"};
    const Said second = Call(RunTrain, rest);
    ASSERT_TRUE(second.IsDone()) << second.code.status().ToString();
    EXPECT_THAT(second.out + second.err, HasSubstr("proved"));
  }
}

TEST_F(TrainTest, RefusesAFolderThatAnotherRunSavesIn) {
  TrainOptions options = Options(2, {"log_interval=1"});
  options.run.save = In("link").string();
  options.run.metrics = In("metrics.jsonl").string();
  ASSERT_THAT(PosixStorage().MakeDirectories(In("out")), IsOk());
  boost::filesystem::create_directory_symlink("out", In("link"));
  {
    const auto other_run = PosixStorage().Lock(In("out"));
    ASSERT_THAT(other_run, IsOk());
    const Said said = Call(RunTrain, options);
    EXPECT_THAT(said.code.status(), FailsWith(ErrorKind::kAlreadyExists));
    EXPECT_THAT(said.code.status().ToString(), HasSubstr("another run is writing"));
    EXPECT_EQ(said.out, "");
    EXPECT_EQ(PosixStorage().Stat(In("metrics.jsonl"))->type, FileType::kMissing);
  }
  EXPECT_TRUE(Call(RunTrain, options).IsDone());
}

TEST_F(TrainTest, TheStepThatFollowsProvesACheckpoint) {
  OpenModelOptions padded;
  padded.with_vocabulary_padding = true;
  for (const bool is_async : {false, true}) {
    TrainOptions options = Options(
        2, {"train_iters=5", "save_interval=2", is_async ? "async_save=true" : "log_interval=1"});
    options.run.save = In(is_async ? "async" : "sync").string();
    options.common.json = true;
    const Said said = Call(RunTrain, options);
    ASSERT_TRUE(said.IsDone()) << said.code.status().ToString();
    const std::string step_3 = said.out.substr(said.out.find("{\"step\":3,"));
    const auto saved =
        OpenTrainingState(PosixStorage(), Path(options.run.save) / "iter_0000002", padded);
    ASSERT_THAT(saved, IsOk());
    EXPECT_EQ(saved->facts.next_loss, Number(step_3.substr(0, step_3.find('\n')), "loss"));
    EXPECT_EQ(saved->run.finished_updates(), 2);
    EXPECT_THAT(step_3, HasSubstr("\"save_ms\":"));
  }
}

TEST_F(TrainTest, MetricsTellWhatTheExpertsDid) {
  TrainOptions options = Options(2, {"train_iters=2", "moe_expert_capacity_factor=0.5",
                                     "moe_router_load_balancing_type=aux_loss",
                                     "moe_aux_loss_coeff=0.01", "expert_model_parallel_size=2"});
  options.common.json = true;
  const Said said = Call(RunTrain, options);
  ASSERT_TRUE(said.IsDone()) << said.code.status().ToString();
  const std::string line = said.out.substr(0, said.out.find('\n'));
  EXPECT_GE(Number(line, "aux_loss"), 0.01 - 1e-6) << "balanced at best";
  EXPECT_EQ(Number(line, "expert_load_max"), 1) << "every expert is full";
  EXPECT_EQ(Number(line, "expert_load_min"), 1);
  const auto json = JsonDocument::Parse(line, "line");
  // Half of the 8 · 16 tokens' 2 choices find room at most.
  EXPECT_GE(json->root().At("dropped_tokens")->Int64().value(), 8 * 16);
  EXPECT_GT(json->root().At("peak_bytes")->Int64().value(), 0);

  TrainOptions roomy = Options(2, {"train_iters=1"});
  roomy.common.json = true;
  const Said all = Call(RunTrain, roomy);
  ASSERT_TRUE(all.IsDone()) << all.code.status().ToString();
  const std::string uneven = all.out.substr(0, all.out.find('\n'));
  EXPECT_GT(Number(uneven, "expert_load_max"), 1) << "random routers do not share evenly";
  EXPECT_LE(Number(uneven, "expert_load_max"), 2) << "two choices of a token differ";
  EXPECT_LT(Number(uneven, "expert_load_min"), 1);
}

TEST_F(TrainTest, MixesNoMetricsOfTwoRuns) {
  TrainOptions options = Options(2, {"train_iters=4"});
  options.run.metrics = In("metrics.jsonl").string();
  ASSERT_TRUE(Call(RunTrain, options).IsDone());
  const auto first = ReadSmallFile(PosixStorage(), In("metrics.jsonl"), 1 << 20);
  ASSERT_THAT(first, IsOk());

  TrainOptions other = Options(2, {"train_iters=4", "lr=2e-2"});
  other.run.metrics = options.run.metrics;
  EXPECT_THAT(Call(RunTrain, other).code.status(), FailsWith(ErrorKind::kAlreadyExists));
  EXPECT_EQ(ReadSmallFile(PosixStorage(), In("metrics.jsonl"), 1 << 20).value(), *first);
  EXPECT_TRUE(Call(RunTrain, options).IsDone()) << "the same command starts the same run";
}

TEST_F(TrainTest, ARunThatGoesOnIsTheOneThatItWas) {
  TrainOptions options = Options(2, {"train_iters=4"});
  options.run.save = options.run.load = In("out").string();
  options.run.metrics = In("metrics.jsonl").string();
  ASSERT_TRUE(Call(RunTrain, options).IsDone());
  options.run.set = {"train_iters=6", "lr=5e-3", "log_interval=1"};  // another command
  const Said said = Call(RunTrain, options);
  ASSERT_TRUE(said.IsDone()) << said.code.status().ToString();
  const auto lines = ReadSmallFile(PosixStorage(), In("metrics.jsonl"), 1 << 20);
  EXPECT_EQ(std::ranges::count(*lines, '\n'), 6);
}

TEST_F(TrainTest, EvaluatesAllOfTheDataOnce) {
  // 24 documents of 115 tokens make 172 sequences, which no batch divides.
  TrainOptions options = Options(1, {"train_iters=1"});
  options.run.save = In("out").string();
  ASSERT_TRUE(Call(RunTrain, options).IsDone());
  EvaluateOptions evaluate;
  evaluate.common.threads = 1;
  evaluate.common.json = true;
  evaluate.run.device = options.run.device;
  evaluate.run.load = options.run.save;
  evaluate.run.ranks = 1;
  std::vector<double> losses;
  for (const char* batch : {"global_batch_size=8", "global_batch_size=5"}) {
    evaluate.run.set = {batch};
    const Said said = Call(RunEvaluate, evaluate);
    ASSERT_TRUE(said.IsDone()) << said.code.status().ToString();
    losses.push_back(Number(said.out, "loss"));
    EXPECT_NEAR(Number(said.out, "perplexity"), std::exp(losses.back()), 1e-9);
    EXPECT_EQ(JsonDocument::Parse(said.out, "answer")->root().At("samples")->Int64().value(), 172);
    EXPECT_EQ(JsonDocument::Parse(said.out, "answer")->root().At("tokens")->Int64().value(),
              172 * 16);
  }
  EXPECT_NEAR(losses[0], losses[1], 1e-6);
}

TEST_F(TrainTest, AnErrorOfOneRankEndsAll) {
  TrainOptions options = Options(4);
  options.run.metrics = folder_.path().string();  // rank 0 cannot write into a folder
  EXPECT_FALSE(Call(RunTrain, options).code.ok());
}

TEST_F(TrainTest, AsksForWeightsWhereRandomOnesMeanNothing) {
  const TrainOptions options = Options(1);
  EvaluateOptions evaluate = {.common = options.common, .run = options.run};
  EXPECT_THAT(Call(RunEvaluate, evaluate).code.status(), FailsWith(ErrorKind::kUsage));
  GenerateOptions generate;
  generate.run = options.run;
  generate.prompt = "a";
  EXPECT_THAT(Call(RunGenerate, generate).code.status(), FailsWith(ErrorKind::kUsage));
}

TEST_F(TrainTest, RefusesSettingsThatDoNothing) {
  const auto says = [&](const char* setting, const char* why) {
    const Said said = Call(RunTrain, Options(1, {setting}));
    ASSERT_THAT(said.code, FailsWith(ErrorKind::kUsage)) << setting;
    EXPECT_THAT(said.code.status().ToString(), HasSubstr(why)) << setting;
  };
  says("save_interval=2", "setting save_interval does nothing without save");
  says("keep_checkpoints=2", "setting keep_checkpoints does nothing without save");
  says("async_save=true", "setting async_save does nothing without save");
  says("save_format=hf", "setting save_format does nothing without save");
  says("expert_names=grouped", "setting expert_names does nothing without save");
  says("distributed_timeout_minutes=1",
       "setting distributed_timeout_minutes does nothing where the ranks are threads");
  says("gpu_collectives=nccl", "setting gpu_collectives does nothing with one rank");
  says("eval_iters=2", "setting eval_iters does nothing without valid_data_path");
  says("eval_interval=5", "setting eval_interval does nothing without valid_data_path");
  says("finetune=true", "setting finetune does nothing without load");
  says("prove=true", "setting prove does nothing without load");
  says("restart_data=true", "setting restart_data does nothing without load");
  says("eod_token=7", "setting eod_token does nothing without eod_mask_loss");
  says("packing=false", "setting packing does nothing: the data are documents");
  says("long_examples=truncate", "setting long_examples does nothing: the data are documents");
  says("pad_token=5", "setting pad_token does nothing: the data are documents");
  says("frozen=[\"layers.*\"]", "a pattern that no parameter matches");
  says("frozen=\"*\"", "setting frozen names every parameter");
  const Said unused = Call(
      RunTrain, Options(1, {"eval_interval=0", "valid_data_path=" + In("data.jsonl").string()}));
  ASSERT_THAT(unused.code, FailsWith(ErrorKind::kUsage));
  EXPECT_THAT(unused.code.status().ToString(),
              HasSubstr("setting valid_data_path does nothing with eval_interval=0"));
  const Said past = Call(RunTrain, Options(1, {"eod_mask_loss=true", "eod_token=258"}));
  ASSERT_THAT(past.code, FailsWith(ErrorKind::kUsage));
  EXPECT_THAT(
      past.code.status().ToString(),
      HasSubstr("setting eod_token lies outside the vocabulary: expected [0, 258), found 258"));
}

TEST_F(TrainTest, WhatPrintConfigPrintsIsTaken) {
  for (const char* settings : {"num_experts=4", "num_experts=0"}) {
    std::vector<std::string> more = {settings};
    if (std::string(settings).ends_with("=0")) more.emplace_back("moe_ffn_hidden_size=null");
    TrainOptions options = Options(2, more);
    options.print_config = true;
    options.print_state_digest = false;
    const Said said = Call(RunTrain, options);
    ASSERT_TRUE(said.IsDone()) << said.code.status().ToString();
    ASSERT_THAT(PosixStorage().RemoveAll(In("run.yaml")), IsOk());
    ASSERT_THAT(WriteSmallFile(PosixStorage(), In("run.yaml"), AsBytes(said.out)), IsOk());
    TrainOptions again;
    again.run.config = In("run.yaml").string();
    again.run.ranks = 2;
    const Said trained = Call(RunTrain, again);
    EXPECT_TRUE(trained.IsDone()) << trained.code.status().ToString();
  }
}

TEST_F(TrainTest, NoEvaluationIsNoneAtTheEndEither) {
  TrainOptions options =
      Options(1, {"train_iters=1", "valid_data_path=" + In("data.jsonl").string()});
  options.run.save = options.run.load = In("out").string();
  ASSERT_THAT(Call(RunTrain, options).out, HasSubstr("eval loss"));
  options.run.set = {"train_iters=2", "eval_interval=0"};  // the rest as it was
  const Said said = Call(RunTrain, options);
  ASSERT_TRUE(said.IsDone()) << said.code.status().ToString();
  EXPECT_THAT(said.out, Not(HasSubstr("eval loss")));
}

TEST_F(TrainTest, GenerateTakesOnePrompt) {
  GenerateOptions options = GenerateFrom(In("out"), 1, "");
  EXPECT_THAT(Call(RunGenerate, options).code.status().ToString(), HasSubstr("takes a prompt"));
  options = GenerateFrom(In("out"), 1, "a");
  options.prompt_ids = {1};
  EXPECT_THAT(Call(RunGenerate, options).code.status().ToString(), HasSubstr("takes a prompt"));
}

}  // namespace
}  // namespace ckpt::train

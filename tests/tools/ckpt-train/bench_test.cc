#include <algorithm>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/io/posix_storage.h"
#include "tests/testing/golden.h"
#include "tests/testing/matchers.h"
#include "tests/testing/temp_dir.h"
#include "tools/ckpt-train/cmd_bench.h"
#include "tools/cli/text_output.h"

namespace ckpt::train {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;

BenchOptions Small(const std::string& model, int ranks) {
  BenchOptions options;
  options.common.json = true;
  options.common.quiet = true;
  options.run.ranks = ranks;
  options.run.device = "cpu";  // also where there is a GPU
  options.run.set = {"bf16=false"};
  options.model = model;
  options.tokens_per_rank = 128 / ranks;
  options.seq = 32;
  options.warmup = 1;
  options.steps = 2;
  return options;
}

nlohmann::json Report(const BenchOptions& options) {
  cli::StringOutput out;
  cli::StringOutput err;
  cli::Streams streams = {.out = out, .err = err};
  EXPECT_THAT(RunBench(options, PosixStorage(), streams), IsOk());
  return nlohmann::json::parse(out.text());
}

TEST(BenchTest, TrainsOnTheSameTokensOnAnyNumberOfRanks) {
  for (const char* model : {"tiny", "tiny-moe"}) {
    const nlohmann::json alone = Report(Small(model, 1));
    const nlohmann::json shared = Report(Small(model, 2));
    const auto losses = [](const nlohmann::json& report) {
      return report["losses"].get<std::vector<double>>();
    };
    const std::vector<double> expected = losses(alone);
    const std::vector<double> actual = losses(shared);
    ASSERT_EQ(expected.size(), 3U) << model;  // a step before the timed ones
    ASSERT_EQ(actual.size(), 3U) << model;
    EXPECT_NEAR(actual.front(), expected.front(), 1e-6) << model;
    // The updates between them round differently, and experts' losses are per micro-batch.
    EXPECT_NEAR(actual.back(), expected.back(), 1e-3) << model;
    EXPECT_NE(expected.front(), expected.back()) << model;
    EXPECT_EQ(alone["tokens_per_rank"], 128);
    EXPECT_EQ(shared["tokens_per_rank"], 64);
  }
}

TEST(BenchTest, ReportsWhatItMeasured) {
  BenchOptions options = Small("tiny", 1);
  options.peak_tflops = 2;
  const nlohmann::json report = Report(options);
  const double seconds = report["step_ms"].get<double>() / 1e3;
  EXPECT_EQ(report["steps"], 2);
  EXPECT_LE(report["step_ms_min"], report["step_ms"]);
  EXPECT_DOUBLE_EQ(report["tokens_s_rank"].get<double>(), 128 / seconds);
  EXPECT_NEAR(report["mfu"].get<double>(),
              report["flops_per_token"].get<double>() * 128 / seconds / 2e12, 1e-12);
  EXPECT_GT(report["peak_bytes"]["activations"], 0);
}

// The products of a step are those that its model has: six operations per weight and token.
// Attention computes scores again in the backward, and sees half a key more than half the sequence.
TEST(BenchTest, TheLedgerHasTheOperationsOfAStep) {
  BenchOptions options = Small("tiny", 1);
  options.ledger = true;
  options.peak_tflops = 0.1;
  options.peak_tbytes = 0.01;
  const nlohmann::json report = Report(options);
  const nlohmann::json& ledger = report["ledger"];
  double products = 0;
  double attention = 0;
  double share = 0;
  double gaps = 0;
  std::map<std::string, double> calls;
  for (const nlohmann::json& line : ledger["lines"]) {
    const auto name = line["operation"].get<std::string>();
    calls[name] += line["calls"].get<double>();
    (name.starts_with("Attention") ? attention : products) += line["flops"].get<double>();
    share += line["share"].get<double>();
    gaps += line["gaps_ms"].get<double>();
    EXPECT_GT(line["bytes"].get<double>(), 0) << name;
    EXPECT_GT(line["ms"].get<double>(), 0) << name;
    const double ideal_ms =
        std::max(line["flops"].get<double>() / 0.1e12, line["bytes"].get<double>() / 0.01e12) * 1e3;
    EXPECT_NEAR(line["roofline"].get<double>(), ideal_ms / line["ms"].get<double>(), 1e-9) << name;
  }
  constexpr double kSeq = 32;
  EXPECT_NEAR(products + attention * 6 / 7 * kSeq / (kSeq + 1),
              report["flops_per_token"].get<double>() * 128, 1);
  EXPECT_EQ(calls["Attention"], 2);  // layers
  EXPECT_EQ(calls["AttentionBackward"], 2);
  EXPECT_EQ(calls["GemmForward"], calls["GemmWeights"]);
  EXPECT_EQ(calls["GemmForward"], calls["GemmData"]);
  EXPECT_LE(share, 1 + 1e-9);
  EXPECT_NEAR(gaps, ledger["gaps_ms"].get<double>(), 1e-9);
  EXPECT_NEAR(share + gaps / ledger["step_ms"].get<double>(), 1, 1e-9);
}

// Queues with threads of their own, and other ranks: the ledger is rank 0's.
TEST(BenchTest, TheLedgerOfManyRanksIsThatOfTheFirst) {
  BenchOptions options = Small("tiny-moe", 2);
  options.ledger = true;
  options.run.set.insert(
      options.run.set.end(),
      {"overlap_param_gather=true", "overlap_grad_reduce=true", "expert_model_parallel_size=2"});
  const nlohmann::json ledger = Report(options)["ledger"];
  double grouped = 0;
  for (const nlohmann::json& line : ledger["lines"]) {
    if (line["operation"] == "GroupedForward") grouped += line["calls"].get<double>();
    EXPECT_TRUE(line["roofline"].is_null());  // the CPU's peaks are not known
  }
  EXPECT_EQ(grouped, 4);  // two products of two layers
}

TEST(BenchTest, TimesTheModelOfAHuggingFaceConfig) {
  BenchOptions options =
      Small((testing::GoldenDir() / "hf/qwen3moe-norm-bf16/ckpt/config.json").string(), 2);
  options.run.set.clear();
  const nlohmann::json report = Report(options);
  EXPECT_EQ(report["model"], options.model);
  EXPECT_EQ(report["tokens_per_rank"], 64);
  EXPECT_EQ(report["losses"].size(), 3U);
  EXPECT_GT(report["expert_load_max"], 1) << "its router chooses";
  EXPECT_GT(report["rank_phase_ms"]["forward"]["max"], 0);
}

TEST(BenchTest, TimesTheModelAndTheBatchOfSettings) {
  testing::TempDir dir;
  const Path file = dir.path() / "run.yaml";
  std::ofstream(file.string())
      << "num_layers: 1\nhidden_size: 32\nffn_hidden_size: 64\nnum_attention_heads: 2\n"
         "vocab_size: 50\nseq_length: 16\nmicro_batch_size: 3\n"
         "global_batch_size: 48\nparams_dtype: fp32\n";
  BenchOptions options = Small(file.string(), 1);
  options.run.set.clear();
  options.seq.reset();
  options.tokens_per_rank.reset();
  nlohmann::json report = Report(options);
  EXPECT_EQ(report["seq"], 16);
  EXPECT_EQ(report["tokens_per_rank"], 48);
  options.seq = 8;
  options.run.set = {"num_layers=2"};
  const double flops = report["flops_per_token"].get<double>();
  report = Report(options);
  EXPECT_EQ(report["tokens_per_rank"], 24);
  EXPECT_GT(report["flops_per_token"].get<double>(), flops);
}

TEST(BenchTest, RefusesAFileThatDescribesNoModel) {
  testing::TempDir dir;
  const Path file = dir.path() / "config.json";
  std::ofstream(file.string()) << "{\"model_type\": \"llamoid\"}";
  cli::StringOutput out;
  cli::StringOutput err;
  cli::Streams streams = {.out = out, .err = err};
  EXPECT_THAT(RunBench(Small(file.string(), 1), PosixStorage(), streams),
              FailsWith(ErrorKind::kUnsupported));
}

TEST(BenchTest, BalancedRoutingGivesEveryExpertTheSameOnAnyMesh) {
  BenchOptions options = Small("tiny-moe", 1);
  EXPECT_GT(Report(options)["expert_load_max"].get<double>(), 1.1);
  options.balanced = true;
  const nlohmann::json alone = Report(options);
  EXPECT_EQ(alone["expert_load_max"], 1);
  BenchOptions shared_options = Small("tiny-moe", 2);
  shared_options.balanced = true;
  shared_options.run.set.push_back("expert_model_parallel_size=2");
  const nlohmann::json shared = Report(shared_options);
  EXPECT_EQ(shared["expert_load_max"], 1);
  // Every rank uses the table's first rows, so its tokens meet other experts than in one rank.
  EXPECT_NEAR(shared["losses"][0].get<double>(), alone["losses"][0].get<double>(), 1e-2);
  options.common.json = false;
  cli::StringOutput out;
  cli::StringOutput err;
  cli::Streams streams = {.out = out, .err = err};
  EXPECT_THAT(RunBench(options, PosixStorage(), streams), IsOk());
  EXPECT_THAT(out.text(), HasSubstr("experts   1.00 times the mean at most\n"));
}

TEST(BenchTest, TellsWhatCommunicationCosts) {
  BenchOptions options = Small("tiny-moe", 2);
  EXPECT_FALSE(Report(options).contains("exposed_ms"));
  options.exposed = true;
  options.run.set = {"expert_model_parallel_size=2", "overlap_grad_reduce=true",
                     "overlap_param_gather=true"};
  const nlohmann::json report = Report(options);
  // The time of two steps, less that of others: of either sign on a busy machine, below a step.
  EXPECT_LT(report["exposed_ms"].get<double>(), report["step_ms"].get<double>());
  EXPECT_EQ(report["losses"].size(),
            3U);  // not those of steps without communication, which are wrong
  options.common.json = false;
  cli::StringOutput out;
  cli::StringOutput err;
  cli::Streams streams = {.out = out, .err = err};
  EXPECT_THAT(RunBench(options, PosixStorage(), streams), IsOk());
  EXPECT_THAT(out.text(), HasSubstr(" ms of a step are communication, "));
  options.run.ranks = 1;
  EXPECT_THAT(RunBench(options, PosixStorage(), streams), FailsWith(ErrorKind::kUsage));
}

struct RefusedBalance {
  std::string model;
  std::vector<std::string> set;
  const char* why;
};

TEST(BenchTest, RefusesToBalanceWhatHasNoSuchTable) {
  const RefusedBalance cases[] = {
      {"tiny", {}, "--balanced is for models with experts"},
      {"tiny-moe", {"moe_router_topk=3"}, "16 experts, 3 a token"},
      {"tiny-moe", {"micro_batch_size=1"}, "4 a token, 2 tokens"},
      {"tiny-moe",
       {"moe_router_score_function=sigmoid", "moe_router_enable_expert_bias=true"},
       "moe_router_enable_expert_bias has no effect"},
      {"tiny-moe",
       {"moe_router_pre_softmax=true", "moe_router_num_groups=4", "moe_router_group_topk=2"},
       "moe_router_num_groups has no effect"},
  };
  for (const RefusedBalance& refused : cases) {
    BenchOptions options = Small(refused.model, 1);
    options.balanced = true;
    options.seq = 2;
    options.tokens_per_rank = 8;
    options.run.set.insert(options.run.set.end(), refused.set.begin(), refused.set.end());
    cli::StringOutput out;
    cli::StringOutput err;
    cli::Streams streams = {.out = out, .err = err};
    const Result<cli::ExitCode> outcome = RunBench(options, PosixStorage(), streams);
    ASSERT_THAT(outcome, FailsWith(ErrorKind::kUsage)) << refused.why;
    EXPECT_THAT(outcome.status().ToString(), HasSubstr(refused.why));
  }
}

TEST(BenchTest, RefusesWhatItCannotTime) {
  cli::StringOutput out;
  cli::StringOutput err;
  cli::Streams streams = {.out = out, .err = err};
  EXPECT_THAT(RunBench(Small("d9", 1), PosixStorage(), streams), FailsWith(ErrorKind::kUsage));
  BenchOptions uneven = Small("tiny", 1);
  uneven.seq = 48;
  EXPECT_THAT(RunBench(uneven, PosixStorage(), streams), FailsWith(ErrorKind::kUsage));
}

}  // namespace
}  // namespace ckpt::train

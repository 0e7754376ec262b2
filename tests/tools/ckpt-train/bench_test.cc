#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/io/posix_storage.h"
#include "tests/testing/matchers.h"
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

// `check` on the golden repositories of the families that the trainer covers.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/json/json_reader.h"
#include "tests/testing/golden.h"
#include "tests/testing/matchers.h"
#include "tools/ckpt-train/cmd_check.h"
#include "trainer/check/comparison.h"
#include "trainer/check/run_comparison.h"

namespace ckpt::train {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;

CheckOptions OptionsOf(const std::string& name) {
  const Path directory = testing::GoldenDir() / "hf" / name;
  CheckOptions options;
  options.common.json = true;
  options.common.threads = 1;
  options.common.progress = false;
  options.run.init = "hf:" + (directory / "ckpt").string();
  options.run.ranks = 1;
  options.reference = (directory / "reference.safetensors").string();
  return options;
}

struct Outcome {
  Result<cli::ExitCode> code;
  std::string out;
};

Outcome Check(const CheckOptions& options) {
  cli::StringOutput out;
  cli::StringOutput err;
  cli::Streams streams = {.out = out, .err = err};
  Result<cli::ExitCode> code = RunCheck(options, PosixStorage(), streams);
  return {std::move(code), out.text()};
}

void ExpectEqual(const CheckOptions& options) {
  const Outcome outcome = Check(options);
  ASSERT_THAT(outcome.code, IsOk());
  EXPECT_EQ(*outcome.code, cli::ExitCode::kDone) << outcome.out;
  const auto json = JsonDocument::Parse(outcome.out, "check");
  ASSERT_THAT(json, IsOk());
  EXPECT_TRUE(json->root().At("ok").value().Bool().value());
  EXPECT_LE(json->root().At("logits").value().Double().value(), 1e-5);
}

class CheckGoldenTest : public ::testing::TestWithParam<std::string> {};

TEST_P(CheckGoldenTest, EqualsTransformers) { ExpectEqual(OptionsOf(GetParam())); }

std::string TestName(const ::testing::TestParamInfo<std::string>& test) {
  std::string name = test.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Golden, CheckGoldenTest, ::testing::ValuesIn(testing::TrainedModels()),
                         TestName);

// One case that is in the selection inside the source tree, with experts.
constexpr const char* kExperts = "qwen3moe-norm-bf16";

class CheckMeshTest : public ::testing::TestWithParam<std::vector<std::string>> {};

TEST_P(CheckMeshTest, EqualsTransformersOnTwoRanks) {
  CheckOptions options = OptionsOf(kExperts);
  options.run.ranks = 2;
  options.run.set = GetParam();
  ExpectEqual(options);
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, CheckMeshTest,
    ::testing::Values(std::vector<std::string>{},
                      std::vector<std::string>{"expert_model_parallel_size=2"},
                      std::vector<std::string>{"expert_model_parallel_size=2",
                                               "moe_token_dispatcher_type=allgather",
                                               "data_parallel_sharding_strategy=optim"},
                      std::vector<std::string>{"expert_model_parallel_size=2",
                                               "reduction=canonical"},
                      std::vector<std::string>{"num_distributed_optimizer_instances=2",
                                               "outer_dp_sharding_strategy=optim"}));

// What a run trains with is not what a reference was computed with.
TEST(CheckTest, TakesBatchAndPrecisionFromTheReference) {
  CheckOptions options = OptionsOf(kExperts);
  options.run.set = {"bf16=true",          "global_batch_size=64",     "seq_length=9",
                     "moe_z_loss_coeff=1", "overlap_grad_reduce=true", "overlap_param_gather=true"};
  ExpectEqual(options);
}

TEST(CheckTest, FindsAModelThatComputesSomethingElse) {
  CheckOptions options = OptionsOf(kExperts);
  options.common.json = false;
  options.run.set = {"rotary_base=10001"};
  const Outcome outcome = Check(options);
  ASSERT_THAT(outcome.code, IsOk());
  EXPECT_EQ(*outcome.code, cli::ExitCode::kDifferent);
  EXPECT_THAT(outcome.out, HasSubstr("PAST 1e-05"));
}

TEST(CheckTest, ToleranceDecides) {
  CheckOptions options = OptionsOf(kExperts);
  options.tolerance = 0;
  const Outcome outcome = Check(options);
  ASSERT_THAT(outcome.code, IsOk());
  EXPECT_EQ(*outcome.code, cli::ExitCode::kDifferent);
}

TEST(CheckTest, RefusesAMeshThatDoesNotFit) {
  CheckOptions options = OptionsOf(kExperts);
  options.run.ranks = 3;
  EXPECT_THAT(Check(options).code.status().ToString(),
              HasSubstr("ranks do not divide the sequences"));
  options.run.ranks = 2;
  options.run.set = {"num_distributed_optimizer_instances=2", "expert_model_parallel_size=2"};
  EXPECT_THAT(Check(options).code.status(), FailsWith(ErrorKind::kUsage));
}

TEST(CheckTest, RefusesWeightsOutOfNowhere) {
  CheckOptions options = OptionsOf(kExperts);
  options.run.init = "gguf:somewhere";
  EXPECT_THAT(Check(options).code.status(), FailsWith(ErrorKind::kUsage));
}

// Against itself, with bounds that are not a formality.
TEST_P(CheckGoldenTest, InBfloat16HasBoundsFromTheCpusOwnRounding) {
  CheckOptions options = OptionsOf(GetParam());
  options.bf16 = true;
  options.run.device = "cpu";
  const Outcome outcome = Check(options);
  ASSERT_THAT(outcome.code, IsOk());
  EXPECT_EQ(*outcome.code, cli::ExitCode::kDone) << outcome.out;
  const auto json = JsonDocument::Parse(outcome.out, "check");
  ASSERT_THAT(json, IsOk());
  const auto number = [&](const char* of, const char* name) {
    return json->root().At(of).value().At(name).value().Double().value();
  };
  EXPECT_EQ(number("logits", "error"), 0);
  for (const double bound : {number("loss", "bound"), number("logits", "bound"),
                             json->root().At("gradient_bound").value().Double().value()}) {
    EXPECT_GT(bound, 1e-3);
    EXPECT_LT(bound, 0.5);
  }
}

Computed SmallRun() {
  Computed run = {
      .loss = 2, .vocab_size = 2, .row_elems = 3, .logits = {1, -4, 99, 2, 3, 99}, .gradients = {}};
  for (const char* name : {"a", "b"}) {
    const std::vector<float> values = {1, 2};
    const auto bytes = std::as_bytes(std::span(values));
    run.gradients.push_back(
        {.key = name, .shape = {2}, .values = Bytes(bytes.begin(), bytes.end())});
  }
  return run;
}

void Move(MemoryTensor& gradient, float by) {
  float value = 0;
  std::memcpy(&value, gradient.values.data(), sizeof(value));
  value += by;
  std::memcpy(gradient.values.data(), &value, sizeof(value));
}

TEST(BoundsOfRoundingTest, AreThreeTimesWhatRoundingDoes) {
  const Computed exact = SmallRun();
  Computed rounded = exact;
  rounded.logits[1] += 0.5F;
  rounded.logits[2] += 7;  // padding of the vocabulary
  Move(rounded.gradients[0], 0.25F);
  const ErrorBounds bounds = BoundsOfRounding(exact, rounded);
  EXPECT_DOUBLE_EQ(bounds.loss, 3 * 2 * 0.5 / 2);
  EXPECT_DOUBLE_EQ(bounds.logits, 3 * 0.5 / 4);
  EXPECT_DOUBLE_EQ(bounds.gradients, 3 * 0.25 / 2);

  EXPECT_TRUE(bounds.Hold(CompareRuns(rounded, exact)));
  Computed far = rounded;
  far.loss = 6;
  EXPECT_FALSE(bounds.Hold(CompareRuns(rounded, far)));
  far = rounded;
  far.logits[4] += 2;
  EXPECT_FALSE(bounds.Hold(CompareRuns(rounded, far)));
  far = rounded;
  Move(far.gradients[1], 1);
  EXPECT_FALSE(bounds.Hold(CompareRuns(rounded, far)));
  far = rounded;
  far.logits[0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(bounds.Hold(CompareRuns(rounded, far)));
}

TEST(DeviationTest, IsRelativeToTheLargestMagnitude) {
  const std::vector<double> expected = {4, -8, 0};
  const std::vector<double> actual = {4, -7, 0.5};
  EXPECT_DOUBLE_EQ(Measure(expected, actual).Relative(), 0.125);
  EXPECT_EQ(Measure(expected, expected).Relative(), 0);
  const std::vector<double> zeros = {0, 0, 0};
  EXPECT_EQ(Measure(zeros, zeros).Relative(), 0);
  EXPECT_EQ(Measure(zeros, actual).Relative(), std::numeric_limits<double>::infinity());
  const std::vector<double> broken = {4, std::nan(""), 0};
  EXPECT_EQ(Measure(expected, broken).Relative(), std::numeric_limits<double>::infinity());
}

TEST(DeviationTest, AGradientThatIsZeroButForRoundingIsMeasuredByTheOthers) {
  constexpr double kLargest = 4;  // of all gradients
  const std::vector<double> zeros = {0, 0};
  const std::vector<double> rounded = {1e-9, -2e-9};
  const std::vector<double> also_rounded = {-3e-9, 1e-9};
  for (const auto& [expected, actual] :
       {std::pair(zeros, rounded), std::pair(rounded, zeros), std::pair(rounded, also_rounded)}) {
    EXPECT_LT(Measure(expected, actual).RelativeInGradients(kLargest), 1e-5);
  }
  // A gradient where there should be none is found all the same, and a small one has its own
  // measure.
  const std::vector<double> wrong = {1e-6, 0};
  EXPECT_GT(Measure(zeros, wrong).RelativeInGradients(kLargest), 1e-5);
  const std::vector<double> small = {1e-5, 0};
  const std::vector<double> half = {5e-6, 0};
  EXPECT_DOUBLE_EQ(Measure(small, half).RelativeInGradients(kLargest), 0.5);
  EXPECT_EQ(Measure(zeros, zeros).RelativeInGradients(0), 0);
}

}  // namespace
}  // namespace ckpt::train

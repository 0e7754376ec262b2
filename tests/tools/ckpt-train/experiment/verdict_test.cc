// Every check of the experiment, made to fail on its own.
#include "tools/ckpt-train/experiment/internal/verdict.h"

#include <cmath>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/matchers.h"

namespace ckpt::train {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using testing::IsOk;

// Steps 1 to 8 of two samples each; stations at 0, 4 and 8.
Leg WholeLeg() {
  Leg leg;
  leg.seed = 1234;
  for (std::int64_t step = 1; step <= 8; ++step) {
    const auto place = static_cast<double>(step);
    leg.steps.push_back({.step = step, .loss = 5.0 - place / 10, .grad_norm = 1.0 + place});
    for (const std::int64_t sample : {2 * step - 2, 2 * step - 1}) {
      leg.samples.push_back({sample, {.high = 7, .low = static_cast<std::uint64_t>(sample)}});
    }
  }
  for (const std::int64_t iteration : {0, 4, 8}) {
    leg.stations.push_back(
        {.progress = {.iteration = iteration, .consumed_samples = 2 * iteration, .next_loss = {}},
         .digest = "digest at " + std::to_string(iteration),
         .expert_biases = {0.001F, -0.001F}});
  }
  return leg;
}

// Steps 5 to 8 of it.
Leg ResumedLeg() {
  Leg leg = WholeLeg();
  leg.steps.erase(leg.steps.begin(), leg.steps.begin() + 4);
  leg.samples.erase(leg.samples.begin(), leg.samples.begin() + 8);
  leg.stations.erase(leg.stations.begin());
  return leg;
}

constexpr Tolerance kExact = {.bit_equal = true};
constexpr Tolerance kLoose = {
    .first_loss = 1e-6, .first_norm = 1e-5, .tail_loss = 1e-3, .turned_loss = 1e-2};

ResumeVerdict Judge(const Tolerance& tolerance, const Leg& resumed) {
  const Leg whole = WholeLeg();
  return JudgeResume(
      {.name = "e", .title = "HFSDP", .mesh = {}, .tolerance = tolerance, .from = ""}, resumed,
      whole.stations[1], whole);
}

void ExpectOneFailure(const ResumeVerdict& verdict, const std::string& what) {
  EXPECT_THAT(
      verdict.failures.problems(),
      ElementsAre(AllOf(Field(&Problem::kind, ErrorKind::kValueMismatch),
                        Field(&Problem::message, AllOf(HasSubstr("(e)"), HasSubstr(what))))));
}

TEST(JudgeResumeTest, TheSameRunPasses) {
  const ResumeVerdict verdict = Judge(kExact, ResumedLeg());
  EXPECT_THAT(verdict.failures, IsOk());
  EXPECT_TRUE(verdict.is_bit_equal());
  EXPECT_EQ(verdict.equal_steps, 4);
  EXPECT_EQ(verdict.largest_loss, 0);
}

TEST(JudgeResumeTest, FindsOneBitOfALoss) {
  Leg resumed = ResumedLeg();
  resumed.steps[2].loss = std::nextafter(resumed.steps[2].loss, 10);
  const ResumeVerdict verdict = Judge(kExact, resumed);
  ExpectOneFailure(verdict, "not bit-equal");
  EXPECT_EQ(verdict.equal_steps, 3);
  EXPECT_GT(verdict.largest_loss, 0);
  EXPECT_THAT(Judge(kLoose, resumed).failures, IsOk());
}

TEST(JudgeResumeTest, FindsOneBitOfANorm) {
  Leg resumed = ResumedLeg();
  resumed.steps[0].grad_norm = std::nextafter(resumed.steps[0].grad_norm, 10);
  ExpectOneFailure(Judge(kExact, resumed), "not bit-equal");
}

TEST(JudgeResumeTest, FindsAnotherStateAfterLoading) {
  Leg resumed = ResumedLeg();
  resumed.stations[0].digest = "another";
  const ResumeVerdict verdict = Judge(kLoose, resumed);
  ExpectOneFailure(verdict, "the state after loading");
  EXPECT_FALSE(verdict.is_loaded_equal);
}

TEST(JudgeResumeTest, FindsAnotherStateAtTheEnd) {
  Leg resumed = ResumedLeg();
  resumed.stations[1].digest = "another";
  const ResumeVerdict verdict = Judge(kExact, resumed);
  ExpectOneFailure(verdict, "after the last step");
  EXPECT_FALSE(verdict.is_bit_equal());
}

TEST(JudgeResumeTest, FindsALostRouterBias) {
  Leg resumed = ResumedLeg();
  resumed.stations[0].expert_biases[1] = 0;
  ExpectOneFailure(Judge(kLoose, resumed), "router biases");
}

TEST(JudgeResumeTest, CountsBiasesThatMovedOnTheWay) {
  Leg resumed = ResumedLeg();
  resumed.stations[1].expert_biases[1] = 0;
  const ResumeVerdict verdict = Judge(kLoose, resumed);
  EXPECT_THAT(verdict.failures, IsOk());
  EXPECT_EQ(verdict.moved_biases, 1);
}

TEST(JudgeResumeTest, FindsAnotherStepSampleOrSeed) {
  Leg resumed = ResumedLeg();
  resumed.stations[0].progress.iteration = 3;
  ExpectOneFailure(Judge(kLoose, resumed), "another step");
  resumed = ResumedLeg();
  resumed.seed = 1;
  ExpectOneFailure(Judge(kLoose, resumed), "seed");
}

TEST(JudgeResumeTest, FindsOtherSamples) {
  for (const int change : {0, 1, 2}) {
    Leg resumed = ResumedLeg();
    if (change == 0) resumed.samples[3].content.low += 1;
    if (change == 1) resumed.samples.pop_back();
    if (change == 2) resumed.samples.push_back(resumed.samples.back());
    ExpectOneFailure(Judge(kLoose, resumed), "other samples");
  }
}

TEST(JudgeResumeTest, HoldsTheFirstStepToItsOwnLimit) {
  Leg resumed = ResumedLeg();
  resumed.steps[0].loss *= 1 + 1e-5;
  ExpectOneFailure(Judge(kLoose, resumed), "the loss of the first step");
  resumed = ResumedLeg();
  resumed.steps[0].grad_norm *= 1 + 1e-4;
  ExpectOneFailure(Judge(kLoose, resumed), "the gradient norm of the first step");
  resumed = ResumedLeg();
  resumed.steps[1].loss *= 1 + 1e-5;
  EXPECT_THAT(Judge(kLoose, resumed).failures, IsOk());
}

TEST(JudgeResumeTest, HoldsEveryStepToTheLimitOfTheTail) {
  Leg resumed = ResumedLeg();
  resumed.steps[3].loss *= 1.002;
  ExpectOneFailure(Judge(kLoose, resumed), "the loss deviates");
  resumed.stations[1].expert_biases[0] = 0;
  EXPECT_THAT(Judge(kLoose, resumed).failures, IsOk());
  resumed.steps[3].loss *= 1.02;
  ExpectOneFailure(Judge(kLoose, resumed), "the loss deviates");
}

}  // namespace
}  // namespace ckpt::train

#include <cmath>
#include <limits>

#include "tests/conformance/ops_suite.h"

namespace ckpt::trainer {
namespace {

const double kNan = std::nan("");

// Sums of a step of one rank, whose peak is 100 bytes.
struct SumsOfOneRank {
  StepSums sums;
  std::int64_t peak_bytes = 100;
};

ExactSum::Limbs Exactly(double value) {
  ExactSum sum;
  sum.Add(value);
  return sum.limbs();
}

double ValueOf(const ExactSum::Limbs& limbs) { return ExactSum(limbs).Value(); }

TEST_P(OpsSuite, LossesOfMicroBatchesAreAddedExactly) {
  const auto sums = Scalars(StepSums{});
  const auto mean = Poisoned(DType::kFloat64, {1});
  const auto add = [&](DType dtype, bool per_token, std::int64_t counted, const Values& losses) {
    ops().AddLosses(queue(), {.per_token_loss = per_token}, counted,
                    Make(dtype, {static_cast<std::int64_t>(losses.size())}, losses),
                    Make(dtype, {1}, {0.5}), sums, mean);
    return Read(mean)[0];
  };
  EXPECT_EQ(add(DType::kFloat32, false, 2, {1, 0, 2}), 1.5);
  EXPECT_EQ(add(DType::kFloat64, true, 2, {0x1p60, 0x1p60}), 0x1p60);
  EXPECT_EQ(add(DType::kFloat32, true, 0, {0, 0}), 0) << "nothing counts";
  EXPECT_EQ(add(DType::kFloat64, true, 2, {-0x1p60, -0x1p60}), -0x1p60);
  const auto all = ScalarsIn<StepSums>(sums);
  EXPECT_EQ(ValueOf(all.loss), 1.5) << "the large ones cancel and leave nothing";
  EXPECT_EQ(ValueOf(all.aux_loss), 2);

  EXPECT_TRUE(std::isnan(add(DType::kFloat32, false, 2, {1, kNan})));
  EXPECT_TRUE(std::isnan(ValueOf(ScalarsIn<StepSums>(sums).loss)));
}

// Phases follow one another: what each gets ends where the next begins.
TEST_P(OpsSuite, PhasesOfAQueueAddUpToItsTime) {
  const auto times = Scalars(PhaseTimes{});
  const auto enter = [&](StepPhase phase) {
    ops().EnterPhase(queue(), phase, times);
    return ScalarsIn<PhaseTimes>(times);
  };
  const auto ns_of = [](const PhaseTimes& all, StepPhase phase) {
    return all.ns[static_cast<std::size_t>(phase)];
  };
  const PhaseTimes first = enter(StepPhase::kForward);
  EXPECT_GT(first.since_ns, 0);
  EXPECT_THAT(first.ns, ::testing::Each(0)) << "no phase was begun before";
  const PhaseTimes second = enter(StepPhase::kUpdate);
  EXPECT_EQ(ns_of(second, StepPhase::kForward), second.since_ns - first.since_ns);
  EXPECT_GT(ns_of(second, StepPhase::kForward), 0);
  const PhaseTimes third = enter(StepPhase::kForward);
  const PhaseTimes last = enter(StepPhase::kIdle);
  EXPECT_EQ(ns_of(last, StepPhase::kUpdate), third.since_ns - second.since_ns);
  EXPECT_EQ(ns_of(last, StepPhase::kForward) + ns_of(last, StepPhase::kUpdate),
            last.since_ns - first.since_ns);
  EXPECT_EQ(ns_of(last, StepPhase::kBackward), 0);
}

TEST_P(OpsSuite, SquaresAreAddedExactlyAndTheFirstBadRowIsNoted) {
  const auto sums = Scalars(StepSums{});
  const auto outcome = Scalars(StepOutcome{.bad_row = 7});
  // More rows than one thread would sum, and in an order that loses the small ones elsewhere.
  constexpr std::int64_t kRows = 100'000;
  Values rows(kRows, 0x1p-60);
  rows[0] = 1;
  const auto update = Scalars(UpdateScalars{});
  const auto add = [&] {
    ops().AddSquares(queue(), Make(DType::kFloat64, {kRows}, rows), update, sums, outcome);
    return ScalarsIn<StepOutcome>(outcome).bad_row;
  };
  EXPECT_EQ(add(), -1);
  EXPECT_EQ(ValueOf(ScalarsIn<StepSums>(sums).squares), 1 + 99'999 * 0x1p-60);
  rows[99'998] = kNan;
  rows[70'001] = std::numeric_limits<double>::infinity();
  EXPECT_EQ(add(), 70'001);
  EXPECT_TRUE(std::isnan(ValueOf(ScalarsIn<StepSums>(sums).squares)));
}

TEST_P(OpsSuite, SquaresAreThoseOfTheScaledGradient) {
  const auto sums = Scalars(StepSums{});
  const auto update = Scalars(UpdateScalars{.scale = 0.25});
  ops().AddSquares(queue(), Make(DType::kFloat64, {3}, {1, 2, 5}), update, sums,
                   Scalars(StepOutcome{}));
  EXPECT_EQ(ValueOf(ScalarsIn<StepSums>(sums).squares), 0.5);
}

TEST_P(OpsSuite, GradientsAreAveragedOverTokens) {
  for (const auto& [tokens, scale] : {std::pair{8, 0.125}, std::pair{0, 1.0}}) {
    const auto update = Scalars(UpdateScalars{});
    ops().AverageOverTokens(queue(), Scalars(StepSums{.tokens = tokens}), update);
    EXPECT_EQ(ScalarsIn<UpdateScalars>(update).scale, scale);
  }
}

TEST_P(OpsSuite, AStepIsDecidedFromItsSums) {
  SumsOfOneRank all;
  all.sums = {.tokens = 10,
              .loss = Exactly(12),
              .aux_loss = Exactly(2),
              .squares = Exactly(9),
              .dropped = 3,
              .stop_votes = 1};
  const auto decide = [&](const StepRule& rule) {
    const auto sums = Scalars(all);
    const auto update = Scalars(UpdateScalars{.scale = 0.25});
    const auto outcome = Scalars(StepOutcome{});
    ops().DecideStep(queue(), rule, sums, {}, update, outcome);
    const auto decided = ScalarsIn<UpdateScalars>(update);
    const auto result = ScalarsIn<StepOutcome>(outcome);
    EXPECT_EQ(decided.clip, result.clip);
    EXPECT_EQ(decided.skip, 0);
    EXPECT_EQ(result.failure, StepFailure::kNone);
    return result;
  };
  const StepOutcome mean = decide({.clip_grad = 1, .num_batches = 4});
  EXPECT_EQ(mean.loss, 3);
  EXPECT_EQ(mean.aux_loss, 0.5);
  EXPECT_EQ(mean.grad_norm, 3);
  EXPECT_EQ(mean.clip, 1 / (3 + 1e-6));
  EXPECT_EQ(mean.scale, 0.25);
  EXPECT_EQ(mean.tokens, 10);
  EXPECT_EQ(mean.dropped, 3);
  EXPECT_EQ(mean.stop_votes, 1);
  EXPECT_EQ(mean.peak_bytes, 100);

  const StepOutcome per_token = decide({.per_token_loss = true, .num_batches = 4});
  EXPECT_EQ(per_token.loss, 1.2);
  EXPECT_EQ(per_token.clip, 1) << "no norm is too large";
  EXPECT_EQ(decide({.clip_grad = 100, .num_batches = 4}).clip, 1);
}

TEST_P(OpsSuite, AFailedStepIsSkippedAndSoIsEveryStepBehindIt) {
  const auto has_failed = Make(DType::kInt64, {1}, {0});
  const auto decide = [&](const StepSums& sums) {
    const auto update = Scalars(UpdateScalars{});
    const auto outcome = Scalars(StepOutcome{});
    ops().DecideStep(queue(), {}, Scalars(SumsOfOneRank{.sums = sums}), has_failed, update,
                     outcome);
    const StepFailure failure = ScalarsIn<StepOutcome>(outcome).failure;
    EXPECT_EQ(ScalarsIn<UpdateScalars>(update).skip != 0, failure != StepFailure::kNone);
    return failure;
  };
  for (const auto& [sums, failure] :
       {std::pair{StepSums{.loss = Exactly(kNan), .squares = Exactly(kNan)}, StepFailure::kLoss},
        std::pair{StepSums{.aux_loss = Exactly(kNan)}, StepFailure::kLoss},
        std::pair{StepSums{.squares = Exactly(kNan)}, StepFailure::kGradient},
        std::pair{StepSums{.loss = Exactly(kNan), .overflows = 1}, StepFailure::kOverflow}}) {
    ops().Fill(queue(), has_failed, 0);
    EXPECT_EQ(decide({}), StepFailure::kNone);
    EXPECT_EQ(decide(sums), failure);
    EXPECT_EQ(decide({}), StepFailure::kEarlier);
    EXPECT_EQ(decide(sums), StepFailure::kEarlier);
  }
}

}  // namespace
}  // namespace ckpt::trainer

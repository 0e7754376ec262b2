// What a step's report says of the time that each of its phases took.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/matchers.h"
#include "tests/trainer/step/around_device.h"
#include "tests/trainer/step/trained_run.h"
#include "trainer/comm/thread_comm.h"
#include "trainer/ops/cpu/host_ops.h"
#include "trainer/step/rank_phases.h"

namespace ckpt {
namespace {

using testing::Around;
using testing::AroundDevice;
using testing::IsOk;
using testing::OnMesh;
using testing::SmallMoe;
using testing::SmallRun;
using testing::Train;
using namespace trainer;  // NOLINT(google-build-using-namespace)
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLong(20);
// What is left of that if the waiting thread is late to notice the time.
constexpr double kMostOfItMs = 5;

double Milliseconds(Clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

double MillisecondsOf(const StepReport& report, StepPhase phase) {
  return report.phase_ms[static_cast<std::size_t>(phase)];
}

double Sum(const StepReport& report) {
  return std::accumulate(report.phase_ms.begin(), report.phase_ms.end(), 0.0);
}

TEST(StepPhasesTest, OfOneRankFillTheStepAndContainNoWaits) {
  for (const QueueMode queues : {QueueMode::kInline, QueueMode::kThreads}) {
    const TrainConfig config = SmallRun(SmallMoe(), 4);
    EXPECT_THAT(RunRanks(1,
                         [&](HostGroup& world) -> Status {
                           const auto device = MakeHostDevice({.queues = queues});
                           const auto ops = MakeHostOps({});
                           CKPT_ASSIGN_OR_RETURN(
                               const auto trainer,
                               RankTrainer::Create(config, world,
                                                   {.device = device.get(), .ops = ops.get()}));
                           CKPT_RETURN_IF_ERROR(trainer->InitializeWeights());
                           const HostMicroBatch batch = {
                               .tokens = {1, 2, 3}, .labels = {2, 3, 4}, .batch = 1, .seq = 3};
                           const std::vector<HostMicroBatch> batches(4, batch);
                           const Clock::time_point start = Clock::now();
                           double told_ms = 0;
                           for (int step = 0; step < 3; ++step) {
                             CKPT_ASSIGN_OR_RETURN(const StepReport report, trainer->Step(batches));
                             for (const StepPhase phase :
                                  {StepPhase::kForward, StepPhase::kBackward, StepPhase::kUpdate}) {
                               EXPECT_GT(MillisecondsOf(report, phase), 0)
                                   << static_cast<int>(phase);
                             }
                             EXPECT_EQ(MillisecondsOf(report, StepPhase::kGatherWait), 0);
                             EXPECT_EQ(MillisecondsOf(report, StepPhase::kIdle) > 0, step > 0);
                             told_ms += Sum(report);
                             // What is computed between steps belongs to none.
                             CKPT_RETURN_IF_ERROR(trainer->Evaluate(batches).status());
                             CKPT_RETURN_IF_ERROR(trainer->Logits(batch).status());
                           }
                           EXPECT_LE(told_ms, Milliseconds(Clock::now() - start));
                           return OkStatus();
                         }),
                IsOk());
  }
}

// The reports of two ranks whose queue of this name takes long for each piece of work.
std::vector<StepReport> ReportsWithSlow(std::string_view name) {
  const Around slow = [name](std::string_view queue, const std::function<Status()>& work) {
    if (queue == name) std::this_thread::sleep_for(kLong);
    return work();
  };
  const TrainConfig config = OnMesh(SmallRun(SmallMoe(), 2), {.world_size = 2});
  const auto run = Train(config, {.device = {.queues = QueueMode::kThreads},
                                  .wrap_device = [slow](std::unique_ptr<Device> device) {
                                    return std::make_unique<AroundDevice>(std::move(device), slow);
                                  }});
  EXPECT_THAT(run, IsOk());
  return run.ok() ? run->reports : std::vector<StepReport>();
}

TEST(StepPhasesTest, ComputationThatWaitsForWeightsSaysSo) {
  for (const StepReport& report : ReportsWithSlow("gather")) {
    EXPECT_GT(MillisecondsOf(report, StepPhase::kGatherWait), kMostOfItMs) << report.step;
  }
}

TEST(StepPhasesTest, ComputationThatWaitsForSumsOfGradientsSaysSo) {
  for (const StepReport& report : ReportsWithSlow("reduce")) {
    EXPECT_GT(MillisecondsOf(report, StepPhase::kReduceWait), kMostOfItMs) << report.step;
  }
}

// One rank's steps, one after the other, an evaluation between them.
Result<std::vector<StepReport>> StepsWithEvaluations(HostGroup& world, int steps) {
  const auto device = MakeHostDevice({.queues = QueueMode::kThreads});
  const auto ops = MakeHostOps({});
  CKPT_ASSIGN_OR_RETURN(
      const auto trainer,
      RankTrainer::Create(OnMesh(SmallRun(SmallMoe(), world.size()), {.world_size = world.size()}),
                          world, {.device = device.get(), .ops = ops.get()}));
  CKPT_RETURN_IF_ERROR(trainer->InitializeWeights());
  // Of unequal work.
  const std::vector<std::int32_t> tokens(static_cast<std::size_t>(3 + world.rank()), 1);
  const HostMicroBatch batch = {.tokens = tokens,
                                .labels = tokens,
                                .batch = 1,
                                .seq = static_cast<std::int64_t>(tokens.size())};
  std::vector<StepReport> reports;
  for (int step = 0; step < steps; ++step) {
    CKPT_ASSIGN_OR_RETURN(reports.emplace_back(), trainer->Step({&batch, 1}));
    CKPT_RETURN_IF_ERROR(trainer->Evaluate({&batch, 1}).status());
  }
  return reports;
}

TEST(StepPhasesTest, EveryRankIsToldTheShortestAndTheLongestOfAllOfTheStepBefore) {
  constexpr int kRanks = 3;
  constexpr int kSteps = 3;
  std::vector<std::vector<StepReport>> of_rank(kRanks);
  ASSERT_THAT(RunRanks(kRanks,
                       [&](HostGroup& world) -> Status {
                         CKPT_ASSIGN_OR_RETURN(of_rank[static_cast<std::size_t>(world.rank())],
                                               StepsWithEvaluations(world, kSteps));
                         return OkStatus();
                       }),
              IsOk());
  for (const std::vector<StepReport>& reports : of_rank) {
    EXPECT_FALSE(reports.front().rank_phases.has_value());
    for (std::size_t step = 1; step < kSteps; ++step) {
      ASSERT_TRUE(reports[step].rank_phases.has_value());
      const RankPhases& told = *reports[step].rank_phases;
      EXPECT_EQ(told.step, reports[step - 1].step);
      for (std::size_t phase = 0; phase < kNumStepPhases; ++phase) {
        std::vector<double> own;  // what each rank says of itself
        for (const auto& others : of_rank) own.push_back(others[step - 1].phase_ms[phase]);
        const PhaseSpread& spread = told.phases[phase];
        EXPECT_EQ(spread.min_ms, *std::ranges::min_element(own));
        EXPECT_EQ(spread.max_ms, *std::ranges::max_element(own));
        EXPECT_EQ(own[static_cast<std::size_t>(spread.min_rank)], spread.min_ms);
        EXPECT_EQ(own[static_cast<std::size_t>(spread.max_rank)], spread.max_ms);
      }
    }
  }
}

TEST(RankPhasesTest, MeansNameTheRankThatIsSlowestInMostSteps) {
  const auto step = [](std::int64_t forward_of_0, std::int64_t forward_of_1) {
    std::vector<std::int64_t> ns(2 * kNumStepPhases);
    ns[static_cast<std::size_t>(StepPhase::kForward)] = forward_of_0;
    ns[kNumStepPhases + static_cast<std::size_t>(StepPhase::kForward)] = forward_of_1;
    return SpreadOverRanks(1, ns);
  };
  RankPhaseMeans means;
  means.Add(step(2'000'000, 1'000'000));
  means.Add(step(2'000'000, 1'000'000));
  means.Add(step(2'000'000, 8'000'000));
  EXPECT_EQ(means.num_steps(), 3);
  EXPECT_EQ(means.Text(), "forward 1.3 to 4.0 (rank 0)");
}

// Where work runs as it is enqueued, communication holds up the computation and counts as a wait.
TEST(StepPhasesTest, CommunicationOnTheHostsThreadIsAWait) {
  TrainConfig config = OnMesh(SmallRun(SmallMoe(), 2), {.world_size = 2});
  const auto run = Train(config, {});
  ASSERT_THAT(run, IsOk());
  for (const StepReport& report : run->reports) {
    EXPECT_GT(MillisecondsOf(report, StepPhase::kGatherWait), 0);
    EXPECT_GT(MillisecondsOf(report, StepPhase::kReduceWait), 0);
  }
}

}  // namespace
}  // namespace ckpt

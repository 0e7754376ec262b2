#include "trainer/metrics/metrics_log.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/io/memory_storage.h"
#include "core/json/json_reader.h"
#include "tests/testing/matchers.h"
#include "trainer/metrics/run_usage.h"
#include "trainer/metrics/step_metrics.h"

namespace ckpt::train {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::IsOkAndHolds;
using ::testing::Not;

std::string Line(std::int64_t step, const std::string& run = "a") {
  return "{\"step\":" + std::to_string(step) + ",\"run\":\"" + run + "\"}\n";
}

class MetricsLogTest : public ::testing::Test {
 protected:
  void Put(const std::string& text) {
    ASSERT_THAT(storage_->RemoveAll("/run/metrics.jsonl"), IsOk());
    ASSERT_THAT(storage_->MakeDirectories("/run"), IsOk());
    ASSERT_THAT(WriteSmallFile(*storage_, "/run/metrics.jsonl", AsBytes(text)), IsOk());
  }
  Result<std::string> Content() { return ReadSmallFile(*storage_, "/run/metrics.jsonl", 1 << 20); }
  Result<MetricsLog> Open(std::int64_t last_step) {
    CKPT_ASSIGN_OR_RETURN(MetricsLog log, MetricsLog::Take(*storage_, "/run/metrics.jsonl"));
    CKPT_RETURN_IF_ERROR(log.GoOn({.run_id = "a", .last_step = last_step}));
    return log;
  }

  std::unique_ptr<Storage> storage_ = MakeMemoryStorage();
};

TEST_F(MetricsLogTest, MakesFileAndFolder) {
  auto log = Open(0);
  ASSERT_THAT(log, IsOk());
  ASSERT_THAT(log->Append(Line(1)), IsOk());
  ASSERT_THAT(log->Append(Line(2)), IsOk());
  ASSERT_THAT(log->Sync(), IsOk());
  EXPECT_THAT(Content(), IsOkAndHolds(Line(1) + Line(2)));
}

TEST_F(MetricsLogTest, KeepsOtherRunsOut) {
  Put(Line(1));
  {
    const auto log = Open(1);
    ASSERT_THAT(log, IsOk());
    EXPECT_THAT(Open(1).status(), FailsWith(ErrorKind::kAlreadyExists));
    EXPECT_THAT(Open(1).status().ToString(), HasSubstr("another run is writing this file"));
  }
  EXPECT_THAT(Open(1), IsOk());
}

TEST_F(MetricsLogTest, NothingIsLeftOfALogWithoutLines) {
  ASSERT_THAT(Open(0), IsOk());
  EXPECT_EQ(storage_->Stat("/run")->type, FileType::kMissing);
}

TEST_F(MetricsLogTest, CutsTheStepsThatAreRepeated) {
  Put(Line(1) + Line(2) + Line(3) + Line(4));
  auto log = Open(2);
  ASSERT_THAT(log, IsOk());
  ASSERT_THAT(log->Append(Line(3)), IsOk());
  EXPECT_THAT(Content(), IsOkAndHolds(Line(1) + Line(2) + Line(3)));
}

TEST_F(MetricsLogTest, CutsALineThatWasCutShort) {
  Put(Line(1) + Line(2) + "{\"step\":3,\"lo");
  ASSERT_THAT(Open(2), IsOk());
  EXPECT_THAT(Content(), IsOkAndHolds(Line(1) + Line(2)));
}

TEST_F(MetricsLogTest, ARunThatIsStartedAgainStartsANewLog) {
  Put(Line(1) + Line(2));
  ASSERT_THAT(Open(0), IsOk());
  EXPECT_THAT(Content(), IsOkAndHolds(""));
}

TEST_F(MetricsLogTest, LeavesTheLinesOfAnotherRunAlone) {
  for (const std::int64_t last_step : {0, 1, 2, 7}) {
    Put(Line(1, "b") + Line(2, "b"));
    EXPECT_THAT(Open(last_step).status(), FailsWith(ErrorKind::kAlreadyExists)) << last_step;
    EXPECT_THAT(Content(), IsOkAndHolds(Line(1, "b") + Line(2, "b")));
  }
}

TEST_F(MetricsLogTest, TakesLinesWithoutARunForItsOwnOnlyWhereItGoesOn) {
  const std::string lines = "{\"step\":1}\n{\"step\":2}\n";
  Put(lines);
  EXPECT_THAT(Open(0).status(), FailsWith(ErrorKind::kAlreadyExists));
  EXPECT_THAT(Open(2), IsOk());
  EXPECT_THAT(Content(), IsOkAndHolds(lines));
}

TEST_F(MetricsLogTest, LeavesStepsThatAreBehindAlone) {
  Put(Line(1) + Line(2));
  ASSERT_THAT(Open(7), IsOk());
  EXPECT_THAT(Content(), IsOkAndHolds(Line(1) + Line(2)));
}

TEST_F(MetricsLogTest, RefusesAFileOfSomethingElse) {
  for (const std::string text : {"dear diary\n", "dear diary", "[1]\n", "{\"loss\":1}\n"}) {
    Put(text);
    EXPECT_THAT(Open(0).status(), FailsWith(ErrorKind::kBadMetadata)) << text;
    EXPECT_THAT(Content(), IsOkAndHolds(text));
  }
}

TEST(StepMetricsTest, NumbersReadBackAsTheyWere) {
  const StepMetrics metrics = {.step = 7,
                               .loss = 0.1 + 0.2,
                               .grad_norm = 1e-300,
                               .lr = 3e-4,
                               .tokens = 512,
                               .step_ms = 100.0 / 3};
  const std::string line = MetricsJson(metrics);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const auto json = JsonDocument::Parse(line, "line");
  ASSERT_THAT(json, IsOk());
  const JsonCursor root = json->root();
  EXPECT_THAT(root.At("step").value().Int64(), IsOkAndHolds(7));
  EXPECT_THAT(root.At("loss").value().Double(), IsOkAndHolds(metrics.loss));
  EXPECT_THAT(root.At("grad_norm").value().Double(), IsOkAndHolds(metrics.grad_norm));
  EXPECT_THAT(root.At("lr").value().Double(), IsOkAndHolds(metrics.lr));
  EXPECT_THAT(root.At("tokens").value().Int64(), IsOkAndHolds(512));
  EXPECT_THAT(root.At("step_ms").value().Double(), IsOkAndHolds(metrics.step_ms));
  EXPECT_THAT(root.At("tokens_per_s").value().Double(), IsOkAndHolds(metrics.tokens_per_s()));
  EXPECT_FALSE(root.Find("eval_loss"));
}

TEST(StepMetricsTest, AnEvaluationIsToldWithItsStep) {
  StepMetrics metrics = {.step = 7};
  EXPECT_THAT(MetricsText(metrics, 9), Not(HasSubstr("eval")));
  metrics.eval_loss = 2.5;
  EXPECT_THAT(MetricsText(metrics, 9), HasSubstr("step 7/9  eval loss 2.5000"));
  EXPECT_THAT(MetricsJson(metrics), HasSubstr("\"eval_loss\":2.5"));
}

TEST(StepMetricsTest, TellsTheTimesOfTheStepsPhasesAndTheMemoryByUse) {
  StepMetrics metrics = {.step = 7, .data_wait_ms = 0.25, .phase_ms = {1, 2, 3, 4, 5, 6}};
  metrics.rank_peak_bytes[static_cast<std::size_t>(trainer::MemoryUse::kGradients)] = 99;
  const std::string json = MetricsJson(metrics);
  EXPECT_THAT(json, HasSubstr("\"data_wait_ms\":0.25,\"idle_ms\":1.0,\"forward_ms\":2.0,"
                              "\"backward_ms\":3.0,\"gather_wait_ms\":4.0,"
                              "\"reduce_wait_ms\":5.0,\"update_ms\":6.0"));
  EXPECT_THAT(json, HasSubstr("\"rank_peak_bytes\":{\"weights\":0,\"main weights\":0,"
                              "\"gradients\":99,"));
}

TEST(StepMetricsTest, TellsWhichRanksWereFastestAndSlowestWhereThereAreSeveral) {
  StepMetrics metrics = {.step = 7};
  RunUsage usage;
  usage.Add(metrics);
  EXPECT_THAT(MetricsJson(metrics), Not(HasSubstr("rank_phases")));
  EXPECT_EQ(usage.RanksText(), "");
  metrics.rank_phases.emplace();
  metrics.rank_phases->step = 6;
  metrics.rank_phases->phases[1] = {.min_ms = 1, .max_ms = 2.5, .min_rank = 0, .max_rank = 3};
  EXPECT_THAT(MetricsJson(metrics),
              HasSubstr("\"forward_ms\":{\"min\":1.0,\"min_rank\":0,\"max\":2.5,\"max_rank\":3}"));
  EXPECT_THAT(MetricsJson(metrics), HasSubstr("\"rank_phases\":{\"step\":6,"));
  usage.Add(metrics);
  EXPECT_EQ(usage.RanksText(), "ranks: forward 1.0 to 2.5 (rank 3)");
}

TEST(RunUsageTest, TellsMeansOfTheStepsThatHadThePhase) {
  RunUsage usage;
  StepMetrics step = {.step = 1, .step_ms = 10, .phase_ms = {0, 4, 5, 0, 0, 1}};
  step.rank_peak_bytes[0] = 1024;
  usage.Add(step);
  step.step_ms = 20;
  step.phase_ms = {0, 5, 6, 0, 0, 2};
  step.data_wait_ms = 1;
  step.rank_peak_bytes[0] = 2048;
  usage.Add(step);
  EXPECT_EQ(usage.num_steps(), 2);
  EXPECT_EQ(usage.TimeText(),
            "time: 15.0 ms a step: forward 4.5, backward 5.5, update 1.5; batches 0.5 ms a step");
  EXPECT_EQ(usage.MemoryText(), "memory: 2.0 KiB at most: weights 2.0 KiB");
  step.save_ms = 7;
  usage.Add(step);
  EXPECT_THAT(usage.TimeText(), HasSubstr(", saves 7.0 ms in all"));
}

TEST(StepMetricsTest, TheShareOfTheDevicesPeakIsToldWhereItIsKnown) {
  StepMetrics metrics = {.step = 7};
  EXPECT_THAT(MetricsJson(metrics), Not(HasSubstr("mfu")));
  metrics.mfu = 0.5;
  EXPECT_THAT(MetricsJson(metrics), HasSubstr("\"mfu\":0.5"));
}

}  // namespace
}  // namespace ckpt::train

#include "tools/ckpt-train/experiment/internal/report.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/matchers.h"

namespace ckpt::train {
namespace {

using ::testing::ElementsAre;
using testing::FailsWith;
using ::testing::Field;
using ::testing::HasSubstr;
using testing::IsOk;
using ::testing::Not;

Leg LegOfSteps(std::int64_t begin, std::int64_t end) {
  Leg leg;
  for (const std::int64_t iteration : {begin, end}) {
    Station station;
    station.progress.iteration = iteration;
    station.digest = iteration == begin ? "0a" : "0b";
    leg.stations.push_back(station);
  }
  for (std::int64_t step = begin + 1; step <= end; ++step) {
    leg.steps.push_back({.step = step, .loss = 2.5, .grad_norm = 1.25});
  }
  return leg;
}

// Two cases: one that is bit-equal, and one a little beside.
ReshardFindings TwoCases() {
  ReshardFindings findings = {
      .steps = 2, .resume_steps = 2, .saved_digest = "0a", .whole = {}, .cases = {}};
  findings.whole = LegOfSteps(0, 4);
  for (const double deviation : {0.0, 2e-9}) {
    ResumedCase each = {.resumed = {.name = deviation == 0 ? "a" : "i",
                                    .title = "FSDP",
                                    .mesh = {},
                                    .tolerance = {},
                                    .from = ""},
                        .leg = LegOfSteps(2, 4),
                        .verdict = {}};
    each.verdict.deviations = {{.step = 3, .loss = deviation}, {.step = 4}};
    each.verdict.largest_loss = deviation;
    each.verdict.equal_steps = deviation == 0 ? 2 : 1;
    each.verdict.is_loaded_equal = true;
    each.verdict.is_end_equal = deviation == 0;
    findings.cases.push_back(std::move(each));
  }
  return findings;
}

ReshardFindings OneFailure() {
  ReshardFindings findings = TwoCases();
  findings.cases[1].verdict.failures = Error(ErrorKind::kValueMismatch, "(i) the loss deviates")
                                           .Expected("at most 1e-09")
                                           .Actual("2.00e-09");
  return findings;
}

TEST(ReshardReportTest, SaysWhatIsBitEqualAndWhatIsNot) {
  const std::string text = FindingsText(TwoCases());
  EXPECT_THAT(text, HasSubstr("in all 2 resumed runs; 1 go on bit for bit"));
  EXPECT_THAT(text, HasSubstr("2.0e-09"));
  EXPECT_THAT(text, HasSubstr("1 of 2  within limits"));
  EXPECT_THAT(TwoCases().failures(), IsOk());
}

TEST(ReshardReportTest, NamesEveryFailureEverywhere) {
  const ReshardFindings findings = OneFailure();
  EXPECT_THAT(findings.failures(), FailsWith(ErrorKind::kValueMismatch));
  EXPECT_THAT(FindingsText(findings), HasSubstr("1 of 2 resumed runs fail"));
  EXPECT_THAT(FindingsText(findings), HasSubstr("FAILED"));
  EXPECT_THAT(FindingsMarkdown(findings, "c.svg"),
              HasSubstr("- (i) the loss deviates: expected at most 1e-09, found 2.00e-09"));
  const std::string json = FindingsJson(findings, {"report.md", "c.svg"});
  EXPECT_THAT(json, HasSubstr("\"ok\": false"));
  EXPECT_THAT(json, HasSubstr("\"message\": \"(i) the loss deviates\""));
}

TEST(ReshardReportTest, JsonHasTheFieldsThatScriptsRelyOn) {
  const std::string json = FindingsJson(TwoCases(), {"report.md", "c.svg"});
  for (const char* member :
       {"\"ok\": true", "\"digest\": \"0a\"", "\"name\": \"i\"", "\"mesh\": \"1 rank\"",
        "\"loss_first\": 2.5", "\"loss_last\": 2.5", "\"relative_difference\": 2e-09",
        "\"bit_equal\": true", "\"bit_equal\": false", "\"c.svg\""}) {
    EXPECT_THAT(json, HasSubstr(member));
  }
  EXPECT_THAT(json, Not(HasSubstr("message")));
}

TEST(ReshardReportTest, DrawsTheUninterruptedRunBelowTheOthers) {
  const LineChart chart = FindingsChart(TwoCases());
  EXPECT_THAT(chart.series, ElementsAre("never interrupted", "(a) FSDP", "(i) FSDP"));
  EXPECT_THAT(chart.panels, ElementsAre(Field(&ChartPanel::title, "loss"),
                                        Field(&ChartPanel::title, "gradient norm"),
                                        Field(&ChartPanel::scale, Scale::kLog)));
  EXPECT_EQ(chart.panels[0].curves[0].points.size(), 4U);
  EXPECT_EQ(chart.panels[0].curves[2].points.size(), 2U);
}

}  // namespace
}  // namespace ckpt::train

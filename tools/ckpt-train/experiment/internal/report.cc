#include "tools/ckpt-train/experiment/internal/report.h"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "core/json/json_writer.h"
#include "tools/cli/error_report.h"
#include "tools/cli/table.h"

namespace ckpt::train {
namespace {

using cli::Align;

std::string DeviationText(double deviation) {
  return deviation == 0 ? "0" : fmt::format("{:.1e}", deviation);
}

std::string Name(const ReshardCase& resumed) { return fmt::format("({})", resumed.name); }

std::string VerdictText(const ResumedCase& resumed) {
  if (!resumed.verdict.failures.ok()) return "FAILED";
  return resumed.verdict.is_bit_equal() ? "bit-equal" : "within limits";
}

enum class Shown : std::uint8_t { kAlways, kInReport };

// A column of the table: on a terminal, which is narrow, and in the report.
struct Column {
  cli::Column head;
  Shown shown = Shown::kAlways;
  std::string (*cell)(const ResumedCase& resumed) = nullptr;
};

const auto& Columns() {
  using enum Shown;
  using R = const ResumedCase&;
  constexpr Align kRight = Align::kRight;
  static const std::array columns = {
      Column{{""}, kAlways, [](R r) { return Name(r.resumed); }},
      Column{{"topology"}, kAlways, [](R r) { return r.resumed.title; }},
      Column{{"mesh"}, kAlways, [](R r) { return MeshText(r.resumed.mesh); }},
      Column{{"state"},
             kAlways,
             [](R r) -> std::string { return r.verdict.is_loaded_equal ? "equal" : "DIFFERS"; }},
      Column{{"first loss", kRight},
             kAlways,
             [](R r) { return fmt::format("{:.6f}", r.leg.steps.front().loss); }},
      Column{{"last loss", kRight},
             kInReport,
             [](R r) { return fmt::format("{:.6f}", r.leg.steps.back().loss); }},
      Column{{"first Δ", kRight},
             kAlways,
             [](R r) { return DeviationText(r.verdict.deviations.front().loss); }},
      Column{{"largest Δ", kRight},
             kAlways,
             [](R r) { return DeviationText(r.verdict.largest_loss); }},
      Column{{"norm: first Δ", kRight},
             kInReport,
             [](R r) { return DeviationText(r.verdict.deviations.front().grad_norm); }},
      Column{{"norm: largest Δ", kRight},
             kAlways,
             [](R r) { return DeviationText(r.verdict.largest_norm); }},
      Column{{"biases moved", kRight},
             kInReport,
             [](R r) { return fmt::format("{}", r.verdict.moved_biases); }},
      Column{{"equal steps", kRight},
             kAlways,
             [](R r) {
               return fmt::format("{} of {}", r.verdict.equal_steps, r.verdict.deviations.size());
             }},
      Column{{"verdict"}, kAlways, VerdictText},
      Column{
          {"seconds", kRight}, kInReport, [](R r) { return fmt::format("{:.1f}", r.leg.seconds); }},
  };
  return columns;
}

std::string SourceLine(const ReshardFindings& findings) {
  const std::vector<StepMetrics>& steps = findings.whole.steps;
  const auto saved = static_cast<std::size_t>(findings.steps) - 1;
  return fmt::format("FSDP, {}: {} steps, loss {:.4f} to {:.4f}, saved state {}",
                     MeshText(SourceMesh()), findings.steps, steps.front().loss, steps[saved].loss,
                     findings.saved_digest);
}

std::string Conclusion(const ReshardFindings& findings) {
  std::int64_t failed = 0;
  std::int64_t bit_equal = 0;
  for (const ResumedCase& each : findings.cases) {
    failed += each.verdict.failures.ok() ? 0 : 1;
    bit_equal += each.verdict.is_bit_equal() ? 1 : 0;
  }
  const std::size_t total = findings.cases.size();
  if (failed > 0) return fmt::format("{} of {} resumed runs fail their checks", failed, total);
  return fmt::format(
      "the state arrives bit for bit in all {} resumed runs; {} go on bit for bit as if never "
      "interrupted",
      total, bit_equal);
}

void AppendCase(const ResumedCase& each, JsonWriter& json) {
  const ResumeVerdict& verdict = each.verdict;
  const trainer::MeshConfig& mesh = each.resumed.mesh;
  json.BeginObject();
  json.Key("name").Text(each.resumed.name);
  json.Key("title").Text(each.resumed.title);
  json.Key("mesh").Text(MeshText(mesh));
  json.Key("sharding").Text(trainer::ShardingName(mesh.sharding));
  json.Key("outer_sharding").Text(trainer::OuterShardingName(mesh.outer));
  json.Key("ok").Bool(verdict.failures.ok());
  json.Key("digest").Text(each.leg.stations.front().digest);
  json.Key("loss_first").Double(each.leg.steps.front().loss);
  json.Key("loss_last").Double(each.leg.steps.back().loss);
  json.Key("relative_difference").Double(verdict.deviations.front().loss);
  json.Key("largest_relative_difference").Double(verdict.largest_loss);
  json.Key("norm_relative_difference").Double(verdict.deviations.front().grad_norm);
  json.Key("norm_largest_relative_difference").Double(verdict.largest_norm);
  json.Key("bit_equal").Bool(verdict.is_bit_equal());
  json.Key("equal_steps").Int(verdict.equal_steps);
  json.Key("steps").Int(verdict.deviations.size());
  json.Key("moved_biases").Int(verdict.moved_biases);
  json.Key("end_digest").Text(each.leg.stations.back().digest);
  json.Key("seconds").Double(each.leg.seconds);
  json.End();
}

std::vector<ChartPoint> PointsOf(const std::vector<StepMetrics>& steps,
                                 double StepMetrics::*member) {
  std::vector<ChartPoint> points;
  for (const StepMetrics& step : steps) {
    points.push_back({static_cast<double>(step.step), step.*member});
  }
  return points;
}

ChartPanel PanelOf(const ReshardFindings& findings, std::string title,
                   double StepMetrics::*member) {
  ChartPanel panel = {.title = std::move(title), .scale = Scale::kLinear, .curves = {}};
  panel.curves.push_back({0, PointsOf(findings.whole.steps, member)});
  for (std::size_t i = 0; i < findings.cases.size(); ++i) {
    panel.curves.push_back({i + 1, PointsOf(findings.cases[i].leg.steps, member)});
  }
  return panel;
}

ChartPanel DeviationPanel(const ReshardFindings& findings, std::string title,
                          double Deviation::*member) {
  ChartPanel panel = {.title = std::move(title), .scale = Scale::kLog, .curves = {}};
  for (std::size_t i = 0; i < findings.cases.size(); ++i) {
    ChartCurve curve = {.series = i + 1, .points = {}};
    for (const Deviation& deviation : findings.cases[i].verdict.deviations) {
      curve.points.push_back({static_cast<double>(deviation.step), deviation.*member});
    }
    panel.curves.push_back(std::move(curve));
  }
  return panel;
}

}  // namespace

Status ReshardFindings::failures() const {
  Status all;
  for (const ResumedCase& each : cases) all.Add(each.verdict.failures);
  return all;
}

std::string FindingsText(const ReshardFindings& findings) {
  std::vector<cli::Column> heads;
  for (const Column& column : Columns()) {
    if (column.shown == Shown::kAlways) heads.push_back(column.head);
  }
  cli::Table table(std::move(heads));
  for (const ResumedCase& each : findings.cases) {
    std::vector<std::string> row;
    for (const Column& column : Columns()) {
      if (column.shown == Shown::kAlways) row.push_back(column.cell(each));
    }
    table.AddRow(std::move(row));
  }
  return fmt::format("{}\n\n{}\n{}\n", SourceLine(findings), table.Format(), Conclusion(findings));
}

std::string FindingsMarkdown(const ReshardFindings& findings, const std::string& figure) {
  std::string heads = "|";
  std::string rule = "|";
  for (const Column& column : Columns()) {
    heads += fmt::format(" {} |", column.head.title);
    rule += column.head.align == Align::kRight ? "---:|" : "---|";
  }
  std::string rows;
  for (const ResumedCase& each : findings.cases) {
    rows += "|";
    for (const Column& column : Columns()) rows += fmt::format(" {} |", column.cell(each));
    rows += "\n";
  }
  const Status failed = findings.failures();
  std::string failures;
  for (const Problem& problem : failed.problems()) {
    failures += fmt::format("- {}: expected {}, found {}\n", problem.message, problem.expected,
                            problem.actual);
  }
  if (!failures.empty()) failures = "\n## Failed\n\n" + failures;
  return fmt::format(
      "# Resuming under another mesh\n\n"
      "Source run: {}; computed on: {}; sums of gradients: {}.\n\n"
      "It was saved there, and went on. Every row was loaded from the checkpoint and trained for "
      "{} "
      "steps. *State*: the digest of weights, moments, router biases and progress after loading, "
      "beside what was saved. *Δ*: relative difference to the run that went on, 0 where all bits "
      "are "
      "the same; of the first step, and the largest. *Biases moved*: experts whose routing bias "
      "differs after the last step. The samples that were read are the same in every row, or it "
      "fails.\n\n"
      "{}\n{}\n{}\nResult: {}.\n{}\n![Loss, gradient norm and deviations]({})\n\n"
      "All of it took {:.0f} seconds.\n",
      SourceLine(findings), findings.device, findings.canonical ? "canonical" : "a fixed tree",
      findings.resume_steps, heads, rule, rows, Conclusion(findings), failures, figure,
      findings.seconds);
}

std::string FindingsJson(const ReshardFindings& findings, const ReportFiles& files) {
  const Status failures = findings.failures();
  JsonWriter json(1);
  json.BeginObject();
  json.Key("ok").Bool(failures.ok());
  json.Key("digest").Text(findings.saved_digest);
  json.Key("steps").Int(findings.steps);
  json.Key("resume_steps").Int(findings.resume_steps);
  json.Key("device").Text(findings.device);
  json.Key("reduction").Text(findings.canonical ? "canonical" : "tree");
  json.Key("topologies").BeginArray();
  for (const ResumedCase& each : findings.cases) AppendCase(each, json);
  json.End();
  json.Key("figures").BeginArray().Text(files.figure.string()).End();
  json.Key("report").Text(files.report.string());
  json.Key("seconds").Double(findings.seconds);
  json.Key("errors").BeginArray();
  for (const Problem& problem : failures.problems()) {
    json.BeginObject();
    cli::AppendProblemMembers(problem, json);
    json.End();
  }
  json.End().End();
  return json.Take() + "\n";
}

LineChart FindingsChart(const ReshardFindings& findings) {
  LineChart chart = {.title = "One run, saved and resumed under other meshes",
                     .x_label = "step",
                     .series = {"never interrupted"},
                     .marks = {{static_cast<double>(findings.steps), "saved"}},
                     .panels = {}};
  for (const ResumedCase& each : findings.cases) {
    chart.series.push_back(fmt::format("{} {}", Name(each.resumed), each.resumed.title));
    if (each.resumed.from.empty()) continue;
    const std::int64_t begin = each.leg.stations.front().progress.iteration;
    chart.marks.push_back(
        {static_cast<double>(begin), fmt::format("({}) saved", each.resumed.from)});
  }
  chart.panels.push_back(PanelOf(findings, "loss", &StepMetrics::loss));
  chart.panels.push_back(PanelOf(findings, "gradient norm", &StepMetrics::grad_norm));
  chart.panels.push_back(
      DeviationPanel(findings, "loss: relative difference to the run that was never interrupted",
                     &Deviation::loss));
  return chart;
}

}  // namespace ckpt::train

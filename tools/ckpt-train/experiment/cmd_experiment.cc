#include "tools/ckpt-train/experiment/cmd_experiment.h"

#include <utility>

#include <fmt/format.h>

#include "tools/ckpt-train/experiment/internal/folder.h"
#include "tools/ckpt-train/experiment/internal/line_chart.h"
#include "tools/ckpt-train/experiment/internal/report.h"
#include "tools/ckpt-train/experiment/internal/reshard.h"
#include "tools/ckpt-train/experiment/internal/topologies.h"
#include "tools/cli/error_report.h"

namespace ckpt::train {

using cli::ExitCode;

Result<ExitCode> RunReshard(const ExperimentOptions& options, Storage& storage,
                            cli::Streams& streams) {
  CKPT_ASSIGN_OR_RETURN(
      const trainer::BackendChoice device,
      trainer::ChooseBackend({.name = options.device, .fixed_order = options.canonical}));
  const ReshardSums sums = options.canonical                        ? ReshardSums::kCanonical
                           : trainer::AddsInFixedOrder(device.name) ? ReshardSums::kTree
                                                                    : ReshardSums::kTreeButNorm;
  CKPT_ASSIGN_OR_RETURN(std::vector<ReshardCase> cases,
                        SelectCases(ReshardCases(sums), options.topologies));
  CKPT_ASSIGN_OR_RETURN(ExperimentFolder folder, ExperimentFolder::Open(storage, options.output));
  const ReshardRuns runs = {.cases = std::move(cases),
                            .steps = options.steps,
                            .resume_steps = options.resume_steps,
                            .device = device.name,
                            .canonical = options.canonical};
  CKPT_ASSIGN_OR_RETURN(const ReshardFindings findings,
                        RunReshardRuns(runs, folder, options.common, storage, streams));

  const ReportFiles files = {.report = folder.report(), .figure = folder.figure()};
  const std::string json = FindingsJson(findings, files);
  CKPT_RETURN_IF_ERROR(folder.Write(files.figure, ChartSvg(FindingsChart(findings))));
  CKPT_RETURN_IF_ERROR(
      folder.Write(files.report, FindingsMarkdown(findings, files.figure.filename().string())));
  CKPT_RETURN_IF_ERROR(folder.Write(folder.document(), json));
  if (!options.keep) CKPT_RETURN_IF_ERROR(folder.RemoveCheckpoints());

  const Status failures = findings.failures();
  if (options.common.json) {
    streams.out.Write(json);
  } else {
    streams.out.Write(FindingsText(findings));
    streams.out.Write(
        fmt::format("report  {}\ncurves  {}\n", files.report.string(), files.figure.string()));
  }
  cli::PrintStatus(failures, streams);
  return failures.ok() ? ExitCode::kDone : ExitCode::kDifferent;
}

}  // namespace ckpt::train

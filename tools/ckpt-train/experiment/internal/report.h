// What `experiment reshard` found, for people, for programs, and as a picture.
#ifndef CKPT_TOOLS_CKPT_TRAIN_EXPERIMENT_INTERNAL_REPORT_H_
#define CKPT_TOOLS_CKPT_TRAIN_EXPERIMENT_INTERNAL_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/io/path.h"
#include "tools/ckpt-train/experiment/internal/leg.h"
#include "tools/ckpt-train/experiment/internal/line_chart.h"
#include "tools/ckpt-train/experiment/internal/topologies.h"
#include "tools/ckpt-train/experiment/internal/verdict.h"

namespace ckpt::train {

struct ResumedCase {
  ReshardCase resumed;
  Leg leg;
  ResumeVerdict verdict;
};

struct ReshardFindings {
  std::int64_t steps = 0;  // of the source run, until it was saved
  std::int64_t resume_steps = 0;
  bool canonical = false;
  std::string device = {};   // name of a backend
  std::string saved_digest;  // of the state that the source run saved
  Leg whole;                 // the source run, never interrupted
  std::vector<ResumedCase> cases;
  double seconds = 0;

  // Every check that failed; OK if none did.
  [[nodiscard]] Status failures() const;
};

struct ReportFiles {
  Path report;
  Path figure;
};

// A few lines, a row for every topology, the verdict; ends with a line end.
[[nodiscard]] std::string FindingsText(const ReshardFindings& findings);
// The same and more, with the picture, whose path is `figure`.
[[nodiscard]] std::string FindingsMarkdown(const ReshardFindings& findings,
                                           const std::string& figure);
// One document and a line end.
[[nodiscard]] std::string FindingsJson(const ReshardFindings& findings, const ReportFiles& files);
// Loss and gradient norm of all runs, and how far the resumed ones are from the one that was never
// interrupted.
[[nodiscard]] LineChart FindingsChart(const ReshardFindings& findings);

}  // namespace ckpt::train

#endif  // CKPT_TOOLS_CKPT_TRAIN_EXPERIMENT_INTERNAL_REPORT_H_

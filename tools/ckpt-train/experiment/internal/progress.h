// ExperimentProgress: how far a row of runs is, for people who wait.
#ifndef CKPT_TOOLS_CKPT_TRAIN_EXPERIMENT_INTERNAL_PROGRESS_H_
#define CKPT_TOOLS_CKPT_TRAIN_EXPERIMENT_INTERNAL_PROGRESS_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "tools/cli/command_line.h"
#include "tools/cli/status_line.h"
#include "tools/cli/streams.h"
#include "trainer/metrics/step_metrics.h"

namespace ckpt::train {

// One thread at a time.
class ExperimentProgress {
 public:
  // Of `total_steps` steps of all runs together. `streams` outlives it.
  ExperimentProgress(std::int64_t total_steps, const cli::CommonOptions& options,
                     cli::Streams& streams);

  void BeginRun(std::string title) { title_ = std::move(title); }
  void OnStep(const StepMetrics& metrics);
  // A line that stays, unless only errors are wanted.
  void Say(std::string_view text);

 private:
  using Clock = std::chrono::steady_clock;

  const std::int64_t total_steps_;
  const bool is_quiet_;
  cli::Streams& streams_;
  std::optional<cli::StatusLine> status_;
  std::string title_;
  std::int64_t done_steps_ = 0;
  const Clock::time_point start_ = Clock::now();
};

}  // namespace ckpt::train

#endif  // CKPT_TOOLS_CKPT_TRAIN_EXPERIMENT_INTERNAL_PROGRESS_H_

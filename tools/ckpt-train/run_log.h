// RunLog: the reports of a run while it trains: text or JSON lines, the metrics file, event files.
#ifndef CKPT_TOOLS_CKPT_TRAIN_RUN_LOG_H_
#define CKPT_TOOLS_CKPT_TRAIN_RUN_LOG_H_

#include <chrono>
#include <optional>
#include <string_view>

#include "core/base/result.h"
#include "core/io/storage.h"
#include "tools/cli/command_line.h"
#include "tools/cli/status_line.h"
#include "tools/cli/streams.h"
#include "trainer/metrics/event_file.h"
#include "trainer/metrics/metrics_log.h"
#include "trainer/metrics/run_position.h"
#include "trainer/metrics/run_usage.h"
#include "trainer/metrics/step_metrics.h"
#include "trainer/run/loop_settings.h"
#include "trainer/run/step_observer.h"

namespace ckpt::train {

// For rank 0. One thread.
class RunLog final : public StepObserver {
 public:
  // `streams` outlives it.
  RunLog(const LoopSettings& settings, const cli::CommonOptions& options, cli::Streams& streams);

  // Locks the files for this run, before it reads or computes anything. Errors: those of
  // MetricsLog::Take and EventFile::Take.
  Status TakeFiles(Storage& storage);
  // Continues the files where the run resumes. Errors: those of MetricsLog::GoOn and
  // EventFile::Begin.
  Status BeginFiles(const RunPosition& run);

  // Errors: kNoSpace, kIo.
  Status OnStep(const StepMetrics& metrics) override;
  // Writes a line to standard error.
  void Say(std::string_view text);
  // With -v: where the steps' time went, and the memory.
  void SayUsage();
  // Returns when everything in the files is durable.
  Status Sync() override;

 private:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] bool IsShown(const StepMetrics& metrics) const;
  void ShowProgress(const StepMetrics& metrics);

  const LoopSettings settings_;
  const cli::CommonOptions options_;
  cli::Streams& streams_;
  std::optional<MetricsLog> metrics_;
  std::optional<EventFile> events_;
  std::optional<cli::StatusLine> status_;
  RunPosition run_;
  RunUsage usage_;
  Clock::time_point start_ = Clock::now();
};

}  // namespace ckpt::train

#endif  // CKPT_TOOLS_CKPT_TRAIN_RUN_LOG_H_

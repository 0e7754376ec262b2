#include "tools/ckpt-train/experiment/internal/progress.h"

#include <cmath>

#include <fmt/format.h>

namespace ckpt::train {

ExperimentProgress::ExperimentProgress(std::int64_t total_steps, const cli::CommonOptions& options,
                                       cli::Streams& streams)
    : total_steps_(total_steps), is_quiet_(options.quiet), streams_(streams) {
  if (options.progress.value_or(streams.err_is_terminal && !options.quiet)) {
    status_.emplace(streams.err);
  }
}

void ExperimentProgress::OnStep(const StepMetrics& metrics) {
  ++done_steps_;
  if (!status_ || !status_->IsDue()) return;
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  const auto left = static_cast<double>(total_steps_ - done_steps_);
  const auto eta =
      static_cast<std::int64_t>(std::ceil(seconds * left / static_cast<double>(done_steps_)));
  status_->Show(fmt::format("{:3}%  eta {}:{:02}  {}  step {}  loss {:.4f}",
                            100 * done_steps_ / total_steps_, eta / 60, eta % 60, title_,
                            metrics.step, metrics.loss));
}

void ExperimentProgress::Say(std::string_view text) {
  if (is_quiet_) return;
  if (status_) status_->Clear();
  streams_.err.Write(fmt::format("{}\n", text));
  // Nowhere is left to tell that standard error cannot be written.
  (void)streams_.err.Flush().ok();
}

}  // namespace ckpt::train

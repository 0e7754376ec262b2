// One line on standard error that shows the progress of a long command.
#ifndef CKPT_TOOLS_CLI_INTERNAL_PROGRESS_BAR_H_
#define CKPT_TOOLS_CLI_INTERNAL_PROGRESS_BAR_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/mutex.h"
#include "core/exec/progress.h"
#include "tools/cli/status_line.h"
#include "tools/cli/text_output.h"

namespace ckpt::cli {

// The contents of the line at one moment.
struct ProgressState {
  std::uint64_t done_bytes = 0;
  std::uint64_t total_bytes = 0;
  double seconds = 0;
  std::string item;
};

// "convert   41%  6.2 GiB of 15.1 GiB  1.3 GiB/s  eta 7 s  decoder.layers.12.mlp.w2", cut to
// `columns`.
[[nodiscard]] std::string FormatProgress(std::string_view phase, const ProgressState& state,
                                         std::size_t columns);

// Rewrites the line in place: when a phase begins, and otherwise at most six times per second.
// Clears it at the end. Thread-safe.
class ProgressBar final : public ProgressSink {
 public:
  // REQUIRES: `err` outlives this.
  explicit ProgressBar(TextOutput& err);
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  ~ProgressBar() override = default;

  void OnPhase(std::string_view phase, std::uint64_t bytes, std::uint64_t items) override
      CKPT_EXCLUDES(mutex_);
  void OnDone(std::string_view item, std::uint64_t bytes) override CKPT_EXCLUDES(mutex_);

 private:
  using Clock = std::chrono::steady_clock;

  Clock::time_point start_ = Clock::now();
  Mutex mutex_;
  std::string phase_ CKPT_GUARDED_BY(mutex_);
  StatusLine line_ CKPT_GUARDED_BY(mutex_);
  ProgressState state_ CKPT_GUARDED_BY(mutex_);
};

}  // namespace ckpt::cli

#endif  // CKPT_TOOLS_CLI_INTERNAL_PROGRESS_BAR_H_

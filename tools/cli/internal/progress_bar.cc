#include "tools/cli/internal/progress_bar.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "core/base/quote.h"
#include "core/base/units.h"

namespace ckpt::cli {
namespace {

constexpr std::size_t kColumns = 79;

}  // namespace

std::string FormatProgress(std::string_view phase, const ProgressState& state,
                           std::size_t columns) {
  std::string line(phase);
  const auto done = static_cast<double>(state.done_bytes);
  if (state.total_bytes > 0) {
    line +=
        fmt::format("  {:3.0f}%", std::floor(100 * done / static_cast<double>(state.total_bytes)));
  }
  line += fmt::format("  {} of {}", FormatByteSize(state.done_bytes),
                      FormatByteSize(state.total_bytes));
  // The first moments say nothing about the rate.
  if (state.seconds > 0.2 && state.done_bytes > 0) {
    const double rate = done / state.seconds;
    const auto left =
        static_cast<double>(state.total_bytes - std::min(state.done_bytes, state.total_bytes));
    line += fmt::format("  {}/s  eta {:.0f} s", FormatByteSize(static_cast<std::uint64_t>(rate)),
                        std::ceil(left / rate));
  }
  if (!state.item.empty()) line += "  " + EscapeControls(state.item);
  if (line.size() > columns) line.resize(columns);
  return line;
}

ProgressBar::ProgressBar(TextOutput& err) : line_(err) {}

void ProgressBar::OnPhase(std::string_view phase, std::uint64_t bytes, std::uint64_t /*items*/) {
  const MutexLock lock(mutex_);
  phase_ = phase;
  state_ = ProgressState();
  state_.total_bytes = bytes;
  start_ = Clock::now();
  // Show it at once: the first bytes of the phase may take long.
  line_.Show(FormatProgress(phase_, state_, kColumns));
}

void ProgressBar::OnDone(std::string_view item, std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  state_.done_bytes += bytes;
  if (!line_.IsDue()) return;
  state_.item = item;
  state_.seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  line_.Show(FormatProgress(phase_, state_, kColumns));
}

}  // namespace ckpt::cli

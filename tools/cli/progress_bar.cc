#include "tools/cli/progress_bar.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "core/base/quote.h"
#include "core/base/units.h"

namespace ckpt::cli {
namespace {

constexpr std::size_t kColumns = 79;
constexpr auto kRedrawInterval = std::chrono::milliseconds(167);  // six a second

}  // namespace

std::string FormatProgress(std::string_view verb, const ProgressState& state, std::size_t columns) {
  std::string line(verb);
  const auto done = static_cast<double>(state.done_bytes);
  if (state.total_bytes > 0) {
    line +=
        fmt::format("  {:3.0f}%", std::floor(100 * done / static_cast<double>(state.total_bytes)));
  }
  line += fmt::format("  {} of {}", FormatByteSize(state.done_bytes),
                      FormatByteSize(state.total_bytes));
  // The first instants say nothing about the rate.
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

ProgressBar::ProgressBar(std::string verb, TextOutput& err) : verb_(std::move(verb)), err_(err) {}

ProgressBar::~ProgressBar() {
  const MutexLock lock(mutex_);
  if (!is_drawn_) return;
  err_.Write("\r\x1b[K");
  (void)err_.Flush().ok();
}

void ProgressBar::OnTotal(std::uint64_t bytes, std::uint64_t /*items*/) {
  const MutexLock lock(mutex_);
  state_.total_bytes = bytes;
  state_.done_bytes = 0;
  start_ = Clock::now();
}

void ProgressBar::OnDone(std::string_view item, std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  state_.done_bytes += bytes;
  const Clock::time_point now = Clock::now();
  if (now < next_draw_) return;
  next_draw_ = now + kRedrawInterval;
  state_.item = item;
  state_.seconds = std::chrono::duration<double>(now - start_).count();
  err_.Write("\r\x1b[K" + FormatProgress(verb_, state_, kColumns));
  (void)err_.Flush().ok();
  is_drawn_ = true;
}

}  // namespace ckpt::cli

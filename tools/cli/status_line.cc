#include "tools/cli/status_line.h"

#include <string>

namespace ckpt::cli {
namespace {

constexpr std::string_view kStartOver = "\r\x1b[K";
constexpr auto kInterval = std::chrono::milliseconds(167);  // six a second

}  // namespace

bool StatusLine::IsDue() {
  const Clock::time_point now = Clock::now();
  if (now < next_) return false;
  next_ = now + kInterval;
  return true;
}

void StatusLine::Show(std::string_view text) {
  err_.Write(std::string(kStartOver) + std::string(text));
  // Progress output that cannot be written is dropped.
  (void)err_.Flush().ok();
  is_shown_ = true;
}

void StatusLine::Clear() {
  if (!is_shown_) return;
  err_.Write(kStartOver);
  (void)err_.Flush().ok();
  is_shown_ = false;
}

}  // namespace ckpt::cli

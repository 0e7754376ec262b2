// One line on a terminal that is rewritten in place.
#ifndef CKPT_TOOLS_CLI_STATUS_LINE_H_
#define CKPT_TOOLS_CLI_STATUS_LINE_H_

#include <chrono>
#include <string_view>

#include "tools/cli/text_output.h"

namespace ckpt::cli {

// For one thread at a time. Cleared at the end.
class StatusLine {
 public:
  // REQUIRES: `err` outlives this.
  explicit StatusLine(TextOutput& err) : err_(err) {}
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;
  ~StatusLine() { Clear(); }

  // Whether it is time to show something new: true at most six times per second. A call that
  // returns true starts the next interval.
  [[nodiscard]] bool IsDue();
  // REQUIRES: fits the terminal, holds no control characters.
  void Show(std::string_view text);
  // Call it before anything else is printed.
  void Clear();

 private:
  using Clock = std::chrono::steady_clock;

  TextOutput& err_;
  Clock::time_point next_ = Clock::now();
  bool is_shown_ = false;
};

}  // namespace ckpt::cli

#endif  // CKPT_TOOLS_CLI_STATUS_LINE_H_

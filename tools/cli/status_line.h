// One line on a terminal that is rewritten in place.
#ifndef CKPT_TOOLS_CLI_STATUS_LINE_H_
#define CKPT_TOOLS_CLI_STATUS_LINE_H_

#include <chrono>
#include <string_view>

#include "tools/cli/text_output.h"

namespace ckpt::cli {

// One thread at a time. Cleared at the end.
class StatusLine {
 public:
  // REQUIRES: `err` outlives this.
  explicit StatusLine(TextOutput& err) : err_(err) {}
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;
  ~StatusLine() { Clear(); }

  // True six times a second at most: whether to show something new. Takes the turn.
  [[nodiscard]] bool IsDue();
  // REQUIRES: fits the terminal, holds no control characters.
  void Show(std::string_view text);
  // Before anything else is printed.
  void Clear();

 private:
  using Clock = std::chrono::steady_clock;

  TextOutput& err_;
  Clock::time_point next_ = Clock::now();
  bool is_shown_ = false;
};

}  // namespace ckpt::cli

#endif  // CKPT_TOOLS_CLI_STATUS_LINE_H_

// What a tool's exit status means. Scripts rely on the numbers.
#ifndef CKPT_TOOLS_CLI_EXIT_CODE_H_
#define CKPT_TOOLS_CLI_EXIT_CODE_H_

#include <cstdint>

#include "core/base/status.h"

namespace ckpt::cli {

enum class ExitCode : std::uint8_t {
  kDone = 0,
  kDifferent = 1,  // the check found something different, missing or corrupt
  kUsage = 2,
  kFailed = 3,  // input unreadable, I/O, out of space, refused
};

// The exit code of an operation that ended with `status`.
[[nodiscard]] inline ExitCode ExitCodeOf(const Status& status) {
  if (status.ok()) return ExitCode::kDone;
  return status.kind() == ErrorKind::kUsage ? ExitCode::kUsage : ExitCode::kFailed;
}

}  // namespace ckpt::cli

#endif  // CKPT_TOOLS_CLI_EXIT_CODE_H_

#include "tools/cli/streams.h"

#include <unistd.h>

#include <cstdlib>

namespace ckpt::cli {

Streams ProcessStreams() {
  static DescriptorOutput out(STDOUT_FILENO, "standard output");
  static DescriptorOutput err(STDERR_FILENO, "standard error");
  const bool is_terminal = ::isatty(STDERR_FILENO) == 1;
  const char* no_color = std::getenv("NO_COLOR");
  const bool is_plain = no_color != nullptr && *no_color != '\0';
  return {.out = out,
          .err = err,
          .err_is_terminal = is_terminal,
          .err_has_colour = is_terminal && !is_plain};
}

}  // namespace ckpt::cli

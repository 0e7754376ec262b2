// The output streams of a command: the answer goes to `out`, everything else to `err`.
#ifndef CKPT_TOOLS_CLI_STREAMS_H_
#define CKPT_TOOLS_CLI_STREAMS_H_

#include "tools/cli/text_output.h"

namespace ckpt::cli {

struct Streams {
  TextOutput& out;
  TextOutput& err;
  bool err_is_terminal = false;  // progress is shown by default
  bool err_has_colour = false;
};

// The streams of the process. Colour needs a terminal and no NO_COLOR in the environment
// (https://no-color.org).
Streams ProcessStreams();

}  // namespace ckpt::cli

#endif  // CKPT_TOOLS_CLI_STREAMS_H_

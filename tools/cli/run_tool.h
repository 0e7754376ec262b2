// Runs a whole tool and handles whatever it throws.
#ifndef CKPT_TOOLS_CLI_RUN_TOOL_H_
#define CKPT_TOOLS_CLI_RUN_TOOL_H_

#include <functional>
#include <string>
#include <vector>

#include "tools/cli/exit_code.h"
#include "tools/cli/streams.h"

namespace ckpt::cli {

using Tool = std::function<ExitCode(const std::vector<std::string>& args, Streams& streams)>;

// Returns what `tool` returns for `args` (without the program's name). If it throws, that is
// reported as an error, with `--json` among `args` also as a document. Our code throws nothing:
// memory ran out, or it is a bug.
ExitCode RunTool(const Tool& tool, const std::vector<std::string>& args, Streams& streams);

}  // namespace ckpt::cli

#endif  // CKPT_TOOLS_CLI_RUN_TOOL_H_

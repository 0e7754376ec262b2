// A whole run of a tool, whatever happens in it.
#ifndef CKPT_TOOLS_CLI_RUN_TOOL_H_
#define CKPT_TOOLS_CLI_RUN_TOOL_H_

#include <functional>
#include <string>
#include <vector>

#include "tools/cli/exit_code.h"
#include "tools/cli/streams.h"

namespace ckpt::cli {

using Tool = std::function<ExitCode(const std::vector<std::string>& args, Streams& streams)>;

// What `tool` returns for `args` (without the program's name). What it throws is told as an error, with `--json` among
// `args` as a document, too. Our code throws nothing: it is memory that ran out, or a bug.
ExitCode RunTool(const Tool& tool, const std::vector<std::string>& args, Streams& streams);

}  // namespace ckpt::cli

#endif  // CKPT_TOOLS_CLI_RUN_TOOL_H_

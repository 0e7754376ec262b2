// What a command tells on standard error while it works, as -q, -v and --progress ask for.
#ifndef CKPT_TOOLS_CLI_REPORTING_H_
#define CKPT_TOOLS_CLI_REPORTING_H_

#include <memory>
#include <string>
#include <string_view>

#include "core/exec/progress.h"
#include "tools/cli/command_line.h"
#include "tools/cli/streams.h"

namespace ckpt::cli {

// Under -v: "info: format: dcp, …", what was found out or decided. Else nothing.
void Tell(const CommonOptions& options, std::string_view what, std::string_view text,
          Streams& streams);

// The threads and the memory that reading takes, as Tell.
void TellResources(const CommonOptions& options, Streams& streams);

// Under -vv a line for every tensor; else a bar if --progress asks for it, or if nobody said and
// standard error is a terminal; else a sink that swallows everything. REQUIRES: `streams` outlives it.
std::unique_ptr<ProgressSink> MakeProgress(const CommonOptions& options, Streams& streams);

}  // namespace ckpt::cli

#endif  // CKPT_TOOLS_CLI_REPORTING_H_

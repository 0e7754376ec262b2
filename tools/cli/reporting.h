// What a command writes to standard error while it works, depending on -q, -v and --progress.
#ifndef CKPT_TOOLS_CLI_REPORTING_H_
#define CKPT_TOOLS_CLI_REPORTING_H_

#include <memory>
#include <string_view>

#include "core/exec/progress.h"
#include "tools/cli/command_line.h"
#include "tools/cli/streams.h"

namespace ckpt::cli {

// Under -v writes "info: format: dcp, …": what was detected or decided. Otherwise nothing.
void Tell(const CommonOptions& options, std::string_view what, std::string_view text,
          Streams& streams);

// Tells the threads and the memory that reading uses.
void TellResources(const CommonOptions& options, Streams& streams);

// Under -vv: a line for every tensor. Otherwise a bar, if --progress asks for it, or if neither
// option was given and standard error is a terminal. Otherwise a sink that shows nothing. REQUIRES:
// `streams` outlives it.
std::unique_ptr<ProgressSink> MakeProgress(const CommonOptions& options, Streams& streams);

}  // namespace ckpt::cli

#endif  // CKPT_TOOLS_CLI_REPORTING_H_

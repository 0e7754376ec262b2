// Runs one conversion for the command line.
#ifndef CKPT_TOOLS_CKPT_CONVERT_CMD_CONVERT_H_
#define CKPT_TOOLS_CKPT_CONVERT_CMD_CONVERT_H_

#include "converters/verbs/convert.h"
#include "core/base/result.h"
#include "tools/cli/command_line.h"
#include "tools/cli/exit_code.h"
#include "tools/cli/streams.h"

namespace ckpt::cli {

struct ConvertCommand {
  ConvertOptions options;
  CommonOptions common;
  bool plan_only = false;  // print the plan, write nothing
};

// Errors: those of PrepareConversion and RunConversion.
Result<ExitCode> RunConvert(const ConvertCommand& command, Streams& streams);

}  // namespace ckpt::cli

#endif  // CKPT_TOOLS_CKPT_CONVERT_CMD_CONVERT_H_

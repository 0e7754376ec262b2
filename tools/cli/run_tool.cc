#include "tools/cli/run_tool.h"

#include <algorithm>
#include <exception>

#include "core/base/thrown.h"
#include "tools/cli/error_report.h"

namespace ckpt::cli {

ExitCode RunTool(const Tool& tool, const std::vector<std::string>& args, Streams& streams) {
  try {
    return tool(args, streams);
  } catch (const std::exception&) {
    const bool is_json = std::ranges::find(args, "--json") != args.end();
    return Conclude(ThrownError(std::current_exception()), is_json, streams);
  }
}

}  // namespace ckpt::cli

// Writes the manual page of a tool.
#ifndef CKPT_TOOLS_CLI_INTERNAL_MAN_PAGE_H_
#define CKPT_TOOLS_CLI_INTERNAL_MAN_PAGE_H_

#include <string>

#include "tools/cli/internal/tool_description.h"

namespace ckpt::cli {

// For section 1, in the man macros of roff. It has no date: the same definitions give the same
// bytes.
[[nodiscard]] std::string ManPage(const ToolDescription& tool);

}  // namespace ckpt::cli

#endif  // CKPT_TOOLS_CLI_INTERNAL_MAN_PAGE_H_

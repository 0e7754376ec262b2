// Completion scripts for shells.
#ifndef CKPT_TOOLS_CLI_INTERNAL_COMPLETION_H_
#define CKPT_TOOLS_CLI_INTERNAL_COMPLETION_H_

#include <optional>
#include <string>
#include <string_view>

#include "tools/cli/internal/tool_description.h"

namespace ckpt::cli {

// The script for "bash", "zsh" or "fish"; nothing for another shell. It completes verbs, the
// options of each verb, the words they choose from, and paths. It runs only the shell's own
// functions.
[[nodiscard]] std::optional<std::string> CompletionScript(const ToolDescription& tool,
                                                          std::string_view shell);

}  // namespace ckpt::cli

#endif  // CKPT_TOOLS_CLI_INTERNAL_COMPLETION_H_

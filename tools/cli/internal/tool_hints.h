// Hints of core, which knows no tool, as what people can type.
#ifndef CKPT_TOOLS_CLI_INTERNAL_TOOL_HINTS_H_
#define CKPT_TOOLS_CLI_INTERNAL_TOOL_HINTS_H_

#include <string_view>

namespace ckpt::cli {

// Which command or option does what `hint` advises; `hint` itself, if it is none of those that core
// leaves to the tools. Valid as long as `hint`.
[[nodiscard]] std::string_view InWordsOfTools(std::string_view hint);

}  // namespace ckpt::cli

#endif  // CKPT_TOOLS_CLI_INTERNAL_TOOL_HINTS_H_

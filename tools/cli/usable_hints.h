// Keeps only the hints that the user of a verb can follow.
#ifndef CKPT_TOOLS_CLI_USABLE_HINTS_H_
#define CKPT_TOOLS_CLI_USABLE_HINTS_H_

#include "core/base/status.h"

namespace CLI {
class App;
}

namespace ckpt::cli {

// `status` without the hints that name an option (`--hf-assets`) which `verb` does not have.
// Libraries do not know which tool calls them.
[[nodiscard]] Status WithUsableHints(const Status& status, const CLI::App& verb);

}  // namespace ckpt::cli

#endif  // CKPT_TOOLS_CLI_USABLE_HINTS_H_

// Hints that a verb's user can follow.
#ifndef CKPT_TOOLS_CLI_USABLE_HINTS_H_
#define CKPT_TOOLS_CLI_USABLE_HINTS_H_

#include "core/base/status.h"

namespace CLI {
class App;
}

namespace ckpt::cli {

// `status` without the hints that name an option (`--hf-assets`) which `verb` lacks: libraries do not know whose user they
// advise.
[[nodiscard]] Status WithUsableHints(const Status& status, const CLI::App& verb);

}  // namespace ckpt::cli

#endif  // CKPT_TOOLS_CLI_USABLE_HINTS_H_

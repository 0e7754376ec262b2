// What `--version` prints.
#ifndef CKPT_TOOLS_CLI_VERSION_H_
#define CKPT_TOOLS_CLI_VERSION_H_

#include <string>
#include <string_view>

namespace ckpt::cli {

// "ckpt-inspect 0.1.0", then a line with the versions of the libraries that decide what this build
// can read.
[[nodiscard]] std::string VersionText(std::string_view tool);

}  // namespace ckpt::cli

#endif  // CKPT_TOOLS_CLI_VERSION_H_

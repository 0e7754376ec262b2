// All of ckpt-inspect as one function.
#ifndef CKPT_TOOLS_CKPT_INSPECT_INSPECT_H_
#define CKPT_TOOLS_CKPT_INSPECT_INSPECT_H_

#include <string>
#include <vector>

#include "core/io/storage.h"
#include "tools/cli/exit_code.h"
#include "tools/cli/streams.h"

namespace ckpt::inspect {

// Parses `args` (without the program's name), opens what they name in `storage`, and runs the verb.
cli::ExitCode RunInspect(const std::vector<std::string>& args, Storage& storage,
                         cli::Streams& streams);

}  // namespace ckpt::inspect

#endif  // CKPT_TOOLS_CKPT_INSPECT_INSPECT_H_

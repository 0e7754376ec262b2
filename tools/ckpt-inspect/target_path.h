// Where a verb may write what it makes of a checkpoint.
#ifndef CKPT_TOOLS_CKPT_INSPECT_TARGET_PATH_H_
#define CKPT_TOOLS_CKPT_INSPECT_TARGET_PATH_H_

#include <span>
#include <string_view>

#include "core/base/status.h"
#include "core/io/path.h"

namespace ckpt::inspect {

// `what` is made ("the page"): it must not lie in anything that is read, nor be written over it,
// also not under the name that it has until it is complete. REQUIRES: the paths in `read` are
// canonical. Errors: kUsage.
Status CheckOutside(std::string_view what, const Path& target, std::span<const Path> read);

}  // namespace ckpt::inspect

#endif  // CKPT_TOOLS_CKPT_INSPECT_TARGET_PATH_H_

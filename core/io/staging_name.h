// The name under which a file or directory is written before it gets its own.
#ifndef CKPT_CORE_IO_STAGING_NAME_H_
#define CKPT_CORE_IO_STAGING_NAME_H_

#include <string>
#include <string_view>

#include "core/io/path.h"

namespace ckpt {

// What lies under such a name is emptied unasked when the target is written again, so the name is
// one that nobody gives to a file or folder of theirs.
inline constexpr std::string_view kStagingSuffix = ".ckptkit-partial";

inline Path StagingOf(const Path& target) {
  return {target.string() + std::string(kStagingSuffix)};
}

}  // namespace ckpt

#endif  // CKPT_CORE_IO_STAGING_NAME_H_

// The temporary name under which a file or directory is written before it gets its own.
#ifndef CKPT_CORE_IO_STAGING_NAME_H_
#define CKPT_CORE_IO_STAGING_NAME_H_

#include <string>
#include <string_view>

#include "core/io/path.h"

namespace ckpt {

// A directory with such a name is emptied without asking when the target is written again. Users do
// not give this suffix to files of their own.
inline constexpr std::string_view kStagingSuffix = ".ckptkit-partial";

// Beside the target: behind a trailing slash the name would lie inside it.
inline Path StagingOf(const Path& target) {
  return {WithoutTrailingSlash(target).string() + std::string(kStagingSuffix)};
}

}  // namespace ckpt

#endif  // CKPT_CORE_IO_STAGING_NAME_H_

// The one alias for file system paths, and the rule for names that come from a file.
#ifndef CKPT_CORE_IO_PATH_H_
#define CKPT_CORE_IO_PATH_H_

#include <string_view>

#include <boost/filesystem/path.hpp>

#include "core/base/result.h"

namespace ckpt {

using Path = boost::filesystem::path;

// `directory / name` for a relative name found inside a file.
//
// Errors: kUnsafePath if the name is empty or absolute, contains a NUL or a "..", or is "." in
// another spelling. Names are checked as text. A link that the user placed in the directory is
// followed; a name cannot leave the directory by itself.
Result<Path> JoinInside(const Path& directory, std::string_view name);

// "out/" and "out/." as "out". Nothing else is normalised: "link/../out" lies where the system
// finds it, not beside the link.
[[nodiscard]] Path WithoutTrailingSlash(const Path& path);

// The absolute path with links, "." and ".." resolved as far as it exists. The rest is taken as
// written.
[[nodiscard]] Path CanonicalPath(const Path& path);

// Whether `path` is `directory` or lies in it. REQUIRES: both are canonical.
[[nodiscard]] bool IsWithin(const Path& path, const Path& directory);

}  // namespace ckpt

#endif  // CKPT_CORE_IO_PATH_H_

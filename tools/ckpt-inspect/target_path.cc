#include "tools/ckpt-inspect/target_path.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/io/staging_name.h"

namespace ckpt::inspect {

Status CheckOutside(std::string_view what, const Path& target, std::span<const Path> read) {
  const Path clean = CanonicalPath(target);
  const bool is_outside = std::ranges::none_of(read, [&](const Path& path) {
    return IsWithin(clean, path) || IsWithin(path, StagingOf(clean));
  });
  if (is_outside) return OkStatus();
  return Error(ErrorKind::kUsage,
               fmt::format("{} would lie inside the checkpoint, or be written over it", what))
      .File(target.string())
      .Hint("choose a name beside the checkpoint");
}

}  // namespace ckpt::inspect

// Finds the directory that our manifest covers, from the path that the user gave. It works even if
// the damaged checkpoint cannot be opened.
#ifndef CKPT_TOOLS_CKPT_INSPECT_COVERED_DIRECTORY_H_
#define CKPT_TOOLS_CKPT_INSPECT_COVERED_DIRECTORY_H_

#include <cstdint>
#include <optional>

#include "core/base/result.h"
#include "core/io/storage.h"

namespace ckpt::inspect {

// The directory with the ckptkit.json of the checkpoint at `path`: `path` itself, or the checkpoint
// that a root's tracker names, or, if that tracker is damaged, the root's only checkpoint.
//
// Errors: those of LocateCheckpoint; kUsage (a single file), kNotFound (no ckptkit.json there).
Result<Path> FindCoveredDirectory(Storage& storage, const Path& path,
                                  std::optional<std::int64_t> iteration);

}  // namespace ckpt::inspect

#endif  // CKPT_TOOLS_CKPT_INSPECT_COVERED_DIRECTORY_H_

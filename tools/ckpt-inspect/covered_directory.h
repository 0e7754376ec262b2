// From the path a person gives to the directory that our sidecar covers, also where so much is damaged
// that the checkpoint cannot be opened.
#ifndef CKPT_TOOLS_CKPT_INSPECT_COVERED_DIRECTORY_H_
#define CKPT_TOOLS_CKPT_INSPECT_COVERED_DIRECTORY_H_

#include <cstdint>
#include <optional>

#include "core/base/result.h"
#include "core/io/storage.h"

namespace ckpt::inspect {

// The directory with the ckptkit.json of the checkpoint at `path`: that itself, the one a root leads to,
// or, where the root's tracker is damaged, its only one.
//
// Errors: those of LocateCheckpoint; kUsage (a single file), kNotFound (no ckptkit.json there).
Result<Path> FindCoveredDirectory(Storage& storage, const Path& path,
                                  std::optional<std::int64_t> iteration);

}  // namespace ckpt::inspect

#endif  // CKPT_TOOLS_CKPT_INSPECT_COVERED_DIRECTORY_H_

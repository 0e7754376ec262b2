// Megatron-Core's integrity.json: the SHA-256 of every file of a checkpoint.
#ifndef CKPT_TOOLS_CKPT_INSPECT_INTEGRITY_CHECK_H_
#define CKPT_TOOLS_CKPT_INSPECT_INTEGRITY_CHECK_H_

#include <optional>

#include "core/exec/progress.h"
#include "core/io/storage.h"
#include "tools/ckpt-inspect/payload_check.h"

namespace ckpt::inspect {

// Compares every file that `directory`/integrity.json lists; nothing if there is no such file.
// Findings: kBadMetadata (cannot be parsed), kUnsupported (another algorithm), kUnsafePath,
// kMissingFile, kChecksum.
std::optional<CheckedBytes> CheckIntegrityFile(Storage& storage, const Path& directory, int threads,
                                               ProgressSink& progress);

}  // namespace ckpt::inspect

#endif  // CKPT_TOOLS_CKPT_INSPECT_INTEGRITY_CHECK_H_

// Our own sidecar, where a checkpoint has one: every byte of every file.
#ifndef CKPT_TOOLS_CKPT_INSPECT_MANIFEST_CHECK_H_
#define CKPT_TOOLS_CKPT_INSPECT_MANIFEST_CHECK_H_

#include <optional>

#include "core/exec/progress.h"
#include "core/io/storage.h"
#include "tools/ckpt-inspect/payload_check.h"

namespace ckpt::inspect {

// Compares every file that `directory`/ckptkit.json lists; nothing if there is no such file. A sidecar that is itself
// damaged is a finding, for then nothing proves the rest.
std::optional<CheckedBytes> CheckManifest(Storage& storage, const Path& directory, int threads,
                                          ProgressSink& progress);

}  // namespace ckpt::inspect

#endif  // CKPT_TOOLS_CKPT_INSPECT_MANIFEST_CHECK_H_

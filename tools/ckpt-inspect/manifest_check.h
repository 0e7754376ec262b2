// Our own sidecar, where a checkpoint has one: every byte of every file.
#ifndef CKPT_TOOLS_CKPT_INSPECT_MANIFEST_CHECK_H_
#define CKPT_TOOLS_CKPT_INSPECT_MANIFEST_CHECK_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "core/checkpoint/index.h"
#include "core/exec/progress.h"
#include "core/io/storage.h"
#include "tools/ckpt-inspect/finding.h"

namespace ckpt::inspect {

struct ManifestCheck {
  std::uint64_t checked_bytes = 0;
  std::vector<Finding> findings;
  bool is_repairable = false;  // there is damage, and `repair` mends it
};

// Compares every file that the sidecar of `checkpoint` (see ReadManifest) lists; nothing if it has none. A sidecar that is
// itself damaged is a finding, for then nothing proves the rest. `index` tells whose bytes are damaged; null: it could not be
// read.
std::optional<ManifestCheck> CheckManifest(Storage& storage, const Path& checkpoint,
                                           const CheckpointIndex* index, int threads,
                                           ProgressSink& progress);

}  // namespace ckpt::inspect

#endif  // CKPT_TOOLS_CKPT_INSPECT_MANIFEST_CHECK_H_

// Checks a checkpoint against our own manifest, if it has one: every byte of every file.
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
  bool is_repairable = false;  // there is damage, and `repair` can repair all of it
};

// Compares every file that the manifest of `checkpoint` (see ReadManifest) lists; nothing if it has
// none. If the manifest itself is damaged, that is a finding, because then nothing proves the rest.
// `index` names the owners of damaged bytes; null if it could not be read.
std::optional<ManifestCheck> CheckManifest(Storage& storage, const Path& checkpoint,
                                           const CheckpointIndex* index, int threads,
                                           ProgressSink& progress);

}  // namespace ckpt::inspect

#endif  // CKPT_TOOLS_CKPT_INSPECT_MANIFEST_CHECK_H_

// Compares the files of a checkpoint with its manifest, byte for byte.
#ifndef CKPT_CORE_MANIFEST_VERIFY_MANIFEST_H_
#define CKPT_CORE_MANIFEST_VERIFY_MANIFEST_H_

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/checkpoint/index.h"
#include "core/io/storage.h"
#include "core/manifest/find_damage.h"
#include "core/manifest/manifest.h"
#include "core/manifest/run_root.h"

namespace ckpt {

// Everything that differs: first what sizes show, then blocks, then left-over files. Each part is
// sorted by file and offset, for any number of threads:
//
//   kMissingFile   a file of the manifest does not exist
//   kTruncated     it is shorter
//   kSizeMismatch  it is longer
//   kChecksum      a block differs; `file` gives its extent, the message the only flipped bit
//   kValueMismatch (warning) the tracker beside the checkpoint is absent, or was rewritten
//                  and still is a tracker
//   kLeftover      (warning) a file that the manifest does not know
//
// REQUIRES: not `options.unreadable_is_damage`: only bytes that were read are judged.
// Errors: those of FindDamage.
// Cost: reads everything once; memory for one block per thread.
Result<std::vector<Problem>> VerifyManifest(Storage& storage, const Path& directory,
                                            const Manifest& manifest, const RunRoot& root,
                                            const VerifyOptions& options = {});

// For VerifyOptions::leaves_blocks: whether a file holds tensors or objects of `index`. The
// function keeps a reference to the index.
[[nodiscard]] std::function<bool(std::string_view file)> HeldBy(const CheckpointIndex& index);

// Describes one finding as a problem. REQUIRES: `found` belongs to `manifest`; its block exists.
[[nodiscard]] Problem DescribeFile(const Manifest& manifest, const DamagedFile& found);
[[nodiscard]] Problem DescribeBlock(const Manifest& manifest, const DamagedBlock& found);
[[nodiscard]] std::optional<Problem> DescribeTracker(const Manifest& manifest, TrackerState state);
[[nodiscard]] Problem DescribeLeftover(const std::string& name);

}  // namespace ckpt

#endif  // CKPT_CORE_MANIFEST_VERIFY_MANIFEST_H_

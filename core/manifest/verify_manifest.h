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

namespace ckpt {

// Everything that differs: first what sizes show, then blocks, then left-over files, each in order of the file and the
// offset, whatever the number of threads:
//
//   kMissingFile   a file of the manifest is not there
//   kTruncated     it is shorter
//   kSizeMismatch  it is longer
//   kChecksum      a block differs; `file` gives its extent, and the message the one bit that explains it, if any
//   kValueMismatch (warning) the tracker beside the checkpoint is absent, or was rewritten
//                  and is a tracker still
//   kLeftover      (warning) a file that the manifest does not know
//
// REQUIRES: not `options.unreadable_is_damage`: only bytes that were read are judged.
// Errors: kIo and others of reading, which say nothing about the bytes.
// Cost: reads everything once; memory is one block a thread.
Result<std::vector<Problem>> VerifyManifest(Storage& storage, const Path& directory,
                                            const Manifest& manifest,
                                            const VerifyOptions& options = {});

// For VerifyOptions::leaves_blocks: whether tensors or objects of `index` lie in a file. The function refers to the index.
[[nodiscard]] std::function<bool(std::string_view file)> HeldBy(const CheckpointIndex& index);

// One kind of finding as a problem. REQUIRES: `found` is of `manifest`; a block that lies there.
[[nodiscard]] Problem DescribeFile(const Manifest& manifest, const DamagedFile& found);
[[nodiscard]] Problem DescribeBlock(const Manifest& manifest, const DamagedBlock& found);
[[nodiscard]] std::optional<Problem> DescribeTracker(const Manifest& manifest, TrackerState state);
[[nodiscard]] Problem DescribeLeftover(const std::string& name);

}  // namespace ckpt

#endif  // CKPT_CORE_MANIFEST_VERIFY_MANIFEST_H_

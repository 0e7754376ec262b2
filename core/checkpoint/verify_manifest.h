// Compares the files of a checkpoint with its manifest, byte for byte.
#ifndef CKPT_CORE_CHECKPOINT_VERIFY_MANIFEST_H_
#define CKPT_CORE_CHECKPOINT_VERIFY_MANIFEST_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "core/base/result.h"
#include "core/checkpoint/manifest.h"
#include "core/io/storage.h"

namespace ckpt {

struct VerifyOptions {
  int threads = 1;
  // Called with the bytes read since the last call; from any thread.
  std::function<void(std::uint64_t bytes)> on_progress;
};

// Everything that differs: first what sizes show, then blocks, then left-over files, each in order of the file and the
// offset, whatever the number of threads:
//
//   kMissingFile   a file of the manifest is not there
//   kTruncated     it is shorter; what is left of it is not looked at
//   kSizeMismatch  it is longer
//   kChecksum      a block differs; `file` gives its extent
//   kValueMismatch (warning) Megatron's tracker beside the checkpoint is absent, or was rewritten
//                  and is a tracker still
//   kLeftover      (warning) a file that the manifest does not know
//
// Errors: kIo and others of reading, which say nothing about the bytes.
// Cost: reads everything once; memory is one block a thread.
Result<std::vector<Problem>> VerifyManifest(Storage& storage, const Path& directory,
                                            const Manifest& manifest,
                                            const VerifyOptions& options = {});

}  // namespace ckpt

#endif  // CKPT_CORE_CHECKPOINT_VERIFY_MANIFEST_H_

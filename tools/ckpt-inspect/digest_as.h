// Digests of a model in another naming than the stored one.
#ifndef CKPT_TOOLS_CKPT_INSPECT_DIGEST_AS_H_
#define CKPT_TOOLS_CKPT_INSPECT_DIGEST_AS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/hash.h"
#include "core/checkpoint/digest.h"
#include "core/exec/progress.h"
#include "core/io/path.h"
#include "formats/registry/registry.h"
#include "tools/cli/command_line.h"

namespace ckpt::inspect {

struct ModelDigests {
  std::vector<TensorDigest> tensors;
  std::uint64_t left_out = 0;  // entries of the checkpoint that have no place in the layout
  std::vector<Problem> warnings;
};

// The model's weights only, in the stored dtype, with the names and shapes of `layout`, the
// word of a KnownNaming. `assets`: as in OpenModelOptions.
//
// Errors: kUsage (no such layout), kUnsupported (no table for this model), and those of a
// conversion to it.
Result<ModelDigests> DigestModelAs(const OpenedCheckpoint& checkpoint, const std::string& layout,
                                   const Path& assets, HashAlgorithm algorithm,
                                   const cli::CommonOptions& options, ProgressSink& progress);

}  // namespace ckpt::inspect

#endif  // CKPT_TOOLS_CKPT_INSPECT_DIGEST_AS_H_

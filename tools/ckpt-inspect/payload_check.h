// Checks the stored items themselves: structure, checksums, pickles.
#ifndef CKPT_TOOLS_CKPT_INSPECT_PAYLOAD_CHECK_H_
#define CKPT_TOOLS_CKPT_INSPECT_PAYLOAD_CHECK_H_

#include <cstdint>
#include <vector>

#include "core/checkpoint/source.h"
#include "core/exec/progress.h"

namespace ckpt::inspect {

struct CheckedBytes {
  std::uint64_t read_bytes = 0;     // stored bytes of items that could be read
  std::uint64_t checked_bytes = 0;  // those of them that were compared with a checksum
  std::vector<Problem> problems;    // first those of tensors, then those of objects
};

// Locates every chunk, which verifies its checksum if it has one, and parses every object. What
// ranks that saved alone stored differently is a warning (CompareCopies). Tensors with errors among
// `known` (those of the metadata) are left out: those errors already say that they cannot be read.
CheckedBytes CheckPayload(const CheckpointSource& source, const std::vector<Problem>& known,
                          int threads, ProgressSink& progress);

}  // namespace ckpt::inspect

#endif  // CKPT_TOOLS_CKPT_INSPECT_PAYLOAD_CHECK_H_

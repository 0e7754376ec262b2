// Whether tensors can be trusted, as far as the metadata tell.
#ifndef CKPT_TOOLS_CKPT_INSPECT_HEALTH_H_
#define CKPT_TOOLS_CKPT_INSPECT_HEALTH_H_

#include <vector>

#include "core/checkpoint/source.h"
#include "formats/registry/registry.h"

namespace ckpt::inspect {

// A checkpoint and what is known to be wrong with it before anything is checked.
struct ListedCheckpoint : OpenedCheckpoint {
  std::vector<Problem> problems;  // of reading the metadata, and every file that is not there
};

// Cost: asks for every file of the checkpoint.
[[nodiscard]] ListedCheckpoint ListProblems(OpenedCheckpoint checkpoint);

// Whether one of them is a file that is not there: what is listed is not all of the checkpoint, or cannot be read.
[[nodiscard]] bool LacksFiles(const std::vector<Problem>& problems);

// What reading the metadata found and what ValidateIndex proves wrong, each finding once.
[[nodiscard]] std::vector<Problem> MetadataProblems(const CheckpointSource& source);

// All errors that concern one of `tensors`: those must not be delivered, not even in part.
Status CheckHealthy(const CheckpointSource& source,
                    const std::vector<const GlobalTensor*>& tensors);

// All errors about keys that are neither tensors nor objects of the index: what is so wrong that it could not be listed
// is missing from anything that claims to cover the whole checkpoint.
Status CheckNothingUnlisted(const CheckpointSource& source);

// Drops findings that say the same about the same thing again; order is kept.
void RemoveRepeated(std::vector<Problem>& problems);

}  // namespace ckpt::inspect

#endif  // CKPT_TOOLS_CKPT_INSPECT_HEALTH_H_

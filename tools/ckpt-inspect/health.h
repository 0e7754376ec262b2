// Says whether tensors can be trusted, as far as the metadata show.
#ifndef CKPT_TOOLS_CKPT_INSPECT_HEALTH_H_
#define CKPT_TOOLS_CKPT_INSPECT_HEALTH_H_

#include <vector>

#include "core/checkpoint/source.h"
#include "formats/registry/registry.h"

namespace ckpt::inspect {

// A checkpoint, and what is known to be wrong with it before anything is checked.
struct ListedCheckpoint : OpenedCheckpoint {
  std::vector<Problem> problems;  // from reading the metadata, and every missing file
};

// Cost: asks for the size of every file of the checkpoint.
[[nodiscard]] ListedCheckpoint ListProblems(OpenedCheckpoint checkpoint);

// Whether one of the problems is a missing file: then the list is not all of the checkpoint, or
// cannot be read.
[[nodiscard]] bool LacksFiles(const std::vector<Problem>& problems);

// What was found while reading the metadata and what ValidateIndex proves wrong, each finding once.
[[nodiscard]] std::vector<Problem> MetadataProblems(const CheckpointSource& source);

// All errors that concern one of `tensors`: these must not be delivered, not even in part.
Status CheckHealthy(const CheckpointSource& source,
                    const std::vector<const GlobalTensor*>& tensors);

// Drops findings that repeat an earlier one. The order stays.
void RemoveRepeated(std::vector<Problem>& problems);

}  // namespace ckpt::inspect

#endif  // CKPT_TOOLS_CKPT_INSPECT_HEALTH_H_

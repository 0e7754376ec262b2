// What file names and keys say about the run that wrote a checkpoint.
#ifndef CKPT_TOOLS_CKPT_INSPECT_TOPOLOGY_H_
#define CKPT_TOOLS_CKPT_INSPECT_TOPOLOGY_H_

#include <cstdint>
#include <optional>

#include "core/checkpoint/index.h"

namespace ckpt::inspect {

// A field is empty if the files do not say.
struct Topology {
  std::optional<std::int64_t> writers;            // ranks that wrote tensors
  std::optional<std::int64_t> pipeline_parallel;  // Megatron's, from its RNG keys
  std::optional<std::int64_t> tensor_parallel;
  std::uint64_t max_chunks = 0;  // of one tensor
};

[[nodiscard]] Topology FindTopology(const CheckpointIndex& index);

}  // namespace ckpt::inspect

#endif  // CKPT_TOOLS_CKPT_INSPECT_TOPOLOGY_H_

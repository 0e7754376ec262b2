// What file names and keys say about the run that wrote a checkpoint.
#ifndef CKPT_TOOLS_CKPT_INSPECT_TOPOLOGY_H_
#define CKPT_TOOLS_CKPT_INSPECT_TOPOLOGY_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/checkpoint/index.h"

namespace ckpt::inspect {

// A field is empty if the files do not say.
struct Topology {
  std::optional<std::int64_t> writers;            // ranks that wrote tensors
  std::optional<std::int64_t> pipeline_parallel;  // Megatron's, from its RNG keys
  std::optional<std::int64_t> tensor_parallel;
  std::uint64_t max_chunks = 0;  // of one tensor
};

// The rank in a file's name: "__3_0.distcp", "experts__3_0.distcp": rank 3;
// "shard-00004-model-….safetensors": rank 3.
[[nodiscard]] std::optional<std::int64_t> WriterOf(std::string_view file);

[[nodiscard]] Topology FindTopology(const CheckpointIndex& index);

}  // namespace ckpt::inspect

#endif  // CKPT_TOOLS_CKPT_INSPECT_TOPOLOGY_H_

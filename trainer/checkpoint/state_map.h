// StateMap: which rank writes which rows of a run's state, and where in its memory they are staged.
//
// A pure function of the run's configuration: every rank computes the same map and asks nobody. Of
// equal replicas exactly one writes, chosen so that all ranks write about the same.
#ifndef CKPT_TRAINER_CHECKPOINT_STATE_MAP_H_
#define CKPT_TRAINER_CHECKPOINT_STATE_MAP_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/checkpoint/index.h"
#include "core/checkpoint/memory_source.h"
#include "trainer/step/train_config.h"

namespace ckpt::trainer {

// Keys of the map: "weights.NAME" (parameters and replicated buffers), "moment0.NAME", …: what the
// optimizer keeps of every trained parameter; and "run.NAME", small tensors that belong to the run.
inline constexpr std::string_view kWeightsPart = "weights.";
inline constexpr std::string_view kRunPart = "run.";
[[nodiscard]] std::string MomentPart(int moment);

struct StateMap {
  // A file per rank ("rank-3"): its staging memory, where the rows it writes lie in C order, float32
  // but for "run.". FileId is the rank.
  CheckpointIndex index;
  std::vector<std::uint64_t> staged_bytes;  // of each rank
};

// `run_tensors` are equal on all ranks, and rank 0 writes them.
// Errors: kBadMetadata (a key twice), kResource.
Result<StateMap> MapState(const TrainConfig& config, std::span<const MemoryTensor> run_tensors);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_CHECKPOINT_STATE_MAP_H_

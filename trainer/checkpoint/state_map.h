// StateMap: which rank writes which rows of a run's state, and where in its memory they are staged.
//
// A pure function of the run's configuration: every rank computes the same map without
// communication. Of equal replicas exactly one writes, chosen so that all ranks write about the
// same amount.
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

// Prefixes of the map's keys: "weights.NAME" for parameters and replicated buffers, "moment0.NAME",
// … for the optimizer's state of every trained parameter, "run.NAME" for small tensors that belong
// to the run.
inline constexpr std::string_view kWeightsPart = "weights.";
inline constexpr std::string_view kRunPart = "run.";
[[nodiscard]] std::string MomentPart(int moment);

struct StateMap {
  // One file per rank ("rank-3"), which stands for its staging memory: the rows that it writes, in
  // C order, float32 except for "run.". FileId is the rank.
  CheckpointIndex index;
  std::vector<std::uint64_t> staged_bytes;  // of each rank
};

// `run_tensors` are equal on all ranks. Rank 0 writes them.
// Errors: kBadMetadata (a key twice), kResource.
Result<StateMap> MapState(const TrainConfig& config, std::span<const MemoryTensor> run_tensors);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_CHECKPOINT_STATE_MAP_H_

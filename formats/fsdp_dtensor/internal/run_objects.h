// A training run as Megatron-LM stores it in an `fsdp_dtensor` checkpoint beside weights and
// moments: its whole tree, so that a Megatron-LM run can resume from it. read_run.h is the way
// back.
#ifndef CKPT_FORMATS_FSDP_DTENSOR_INTERNAL_RUN_OBJECTS_H_
#define CKPT_FORMATS_FSDP_DTENSOR_INTERNAL_RUN_OBJECTS_H_

#include <string>
#include <string_view>
#include <vector>

#include "core/checkpoint/entry_paths.h"
#include "core/checkpoint/memory_source.h"
#include "core/checkpoint/source.h"
#include "core/training/training_run.h"

namespace ckpt::fsdp_dtensor {

// Keys of a weight and of what the optimizer keeps for it; `name` is the tensor's in this format
// without wrappers ("decoder.layers.0.mlp.linear_fc1.weight_w").
[[nodiscard]] std::string WeightKey(std::string_view name);
[[nodiscard]] std::string MomentKey(std::string_view name, std::string_view moment);

// Every entry that is not a tensor, in the types that Megatron's own have.
[[nodiscard]] std::vector<PickledEntry> RunObjects(const TrainingRun& run);
// The entries that are tensors and belong to no parameter: states of random generators, each valid
// for its library and a function of the seed.
[[nodiscard]] std::vector<MemoryTensor> RunTensors(const TrainingRun& run);
// Where a flat key stands in Megatron's nested state dict.
[[nodiscard]] EntryPath RunPath(const std::string& key);

}  // namespace ckpt::fsdp_dtensor

#endif  // CKPT_FORMATS_FSDP_DTENSOR_INTERNAL_RUN_OBJECTS_H_

// A training run as torch.distributed.checkpoint.state_dict.get_state_dict names it, beside weights
// and moments. read_run.h is the way back.
#ifndef CKPT_FORMATS_FSDP2_INTERNAL_RUN_OBJECTS_H_
#define CKPT_FORMATS_FSDP2_INTERNAL_RUN_OBJECTS_H_

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "core/checkpoint/chosen_forms.h"
#include "core/checkpoint/entry_paths.h"
#include "core/checkpoint/memory_source.h"
#include "core/checkpoint/source.h"
#include "core/training/run_format.h"
#include "core/training/training_run.h"
#include "formats/megatron/plain_pickle.h"

namespace ckpt::fsdp2 {

// The optimizer as get_state_dict returns it, and with flatten_optimizer_state_dict.
inline constexpr std::string_view kNested = "nested";
inline constexpr std::string_view kOptimizerOption = "optimizer-state-dict";
inline constexpr std::string_view kFlat = "flattened";
inline constexpr std::array kForms = {kNested, kFlat};

// Keys of a weight and of what the optimizer keeps for it; `name` is the parameter's in the live
// module of Transformers.
[[nodiscard]] std::string WeightKey(std::string_view name);
[[nodiscard]] std::string MomentKey(std::string_view name, std::string_view moment);

// Every entry that is not a tensor: parameter groups with all settings of torch's AdamW or SGD,
// their names in a list each, or (kFlat) the settings under the name of every parameter; the
// scheduler, unless `carried` has it; the rest of the run behind kRunState; and `carried`.
[[nodiscard]] std::vector<PickledEntry> RunObjects(const TrainingRun& run, const ChosenForms& forms,
                                                   std::vector<PickledEntry> carried = {});
// Adds the place of the optimizer's state if it keeps nothing: torch asks a nested state dict for
// it. REQUIRES: the entries have what it keeps.
void AddEmptyState(const ChosenForms& forms, RunEntries& entries);
// The number of updates of every parameter, as Adam keeps it. SGD counts none.
[[nodiscard]] std::vector<MemoryTensor> StepTensors(const TrainingRun& run);
// Arguments that describe the model.
[[nodiscard]] PickledEntry ArgsObject(const megatron::NamedValues& args);
// Where a flat key stands in the nested state dict.
[[nodiscard]] EntryPath RunPath(const std::string& key, const ChosenForms& forms);

}  // namespace ckpt::fsdp2

#endif  // CKPT_FORMATS_FSDP2_INTERNAL_RUN_OBJECTS_H_

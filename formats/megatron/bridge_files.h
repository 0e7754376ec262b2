// The files that Megatron-Bridge keeps beside those of a checkpoint: the run's configuration and
// progress, and the tokenizer. Megatron-LM reads past them.
//
//   latest_train_state.pt          beside the tracker: the train_state.pt of the same checkpoint
//   iter_0000100/run_config.yaml   model, optimizer, schedule, …, as the classes to make them of
//   iter_0000100/train_state.pt    step, samples and operations so far: torch.save of a dict
//   iter_0000100/tokenizer/        the tokenizer's own files
#ifndef CKPT_FORMATS_MEGATRON_BRIDGE_FILES_H_
#define CKPT_FORMATS_MEGATRON_BRIDGE_FILES_H_

#include <array>
#include <memory>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/checkpoint/chosen_forms.h"
#include "core/checkpoint/source.h"
#include "core/checkpoint/write_plan.h"
#include "core/io/storage.h"
#include "core/layout/value.h"
#include "core/training/training_run.h"

namespace ckpt::megatron {

// Whose tree is written: an option of the formats that both programs load.
inline constexpr std::string_view kTreeOption = "tree";
inline constexpr std::string_view kTreePurpose = "Whose files lie around the tensors";
inline constexpr std::string_view kTreeOfBridge = "megatron-bridge";
inline constexpr std::array<std::string_view, 2> kTrees = {"megatron-lm", kTreeOfBridge};

inline constexpr std::string_view kRunConfigFile = "run_config.yaml";
inline constexpr std::string_view kTrainStateFile = "train_state.pt";
inline constexpr std::string_view kTokenizerDirectory = "tokenizer";
inline constexpr std::string_view kLatestTrainState = "latest_train_state.pt";
// What the two files are as objects of a checkpoint.
inline constexpr std::string_view kRunConfigKey = "run_config";
inline constexpr std::string_view kTrainStateKey = "train_state";

// `source`, the checkpoint in `directory`, with these files as two more objects: the configuration,
// and the numbers of the train state. `source` itself if there are none.
//
// Errors: those of reading them: kIo, kResource, kBadMetadata (no YAML, a train state that is not
// one number under each name), those of torch files. kBadMetadata (an object of the checkpoint has
// the key of one of them).
Result<std::unique_ptr<CheckpointSource>> WithBridgeFiles(std::unique_ptr<CheckpointSource> source,
                                                          Storage& storage, const Path& directory);

[[nodiscard]] inline bool IsOfBridge(const ChosenForms& forms) {
  return IsChosen(forms, kTreeOption, kTreeOfBridge);
}

// What these objects say, as the arguments of Megatron-LM: the configuration's, and
// `consumed_train_samples`, `skipped_train_samples`, `consumed_valid_samples` and
// `num_floating_point_operations_so_far`. Nothing if there is no configuration of a model.
//
// Errors: those of ReadObject; kBadMetadata; kUnsupported (arguments cannot say what the model is).
Result<layout::Configuration> ReadBridgeArgs(const CheckpointSource& source);

struct BridgeTree {
  std::string_view format;                   // its ckpt_format
  const std::vector<WriteCopy>& side_files;  // of the published model
  std::string_view directory;                // of the checkpoint in `plan`: empty, or ends with '/'
};

// Adds these files for what `run` says; without groups it is a model alone, at step 0.
void AddBridgeFiles(const TrainingRun& run, const BridgeTree& tree, WritePlan& plan);

}  // namespace ckpt::megatron

#endif  // CKPT_FORMATS_MEGATRON_BRIDGE_FILES_H_

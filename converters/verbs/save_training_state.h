// Planning the checkpoint of a training run: the state that its ranks hold, as Megatron-FSDP stores
// it.
#ifndef CKPT_CONVERTERS_VERBS_SAVE_TRAINING_STATE_H_
#define CKPT_CONVERTERS_VERBS_SAVE_TRAINING_STATE_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/checkpoint/source.h"
#include "core/checkpoint/write_plan.h"
#include "core/layout/resolve.h"
#include "core/layout/value.h"
#include "core/plan/conversion_plan.h"
#include "core/training/training_run.h"
#include "formats/dcp/writer.h"

namespace ckpt {

// The state in memory, tensors under the trainer's names ("decoder.layers.0.mlp.linear_fc1.weight") behind a prefix that
// says what they are.
struct RunningState {
  std::shared_ptr<const CheckpointSource> source;
  std::string weights;               // prefix of the weights
  std::vector<std::string> moments;  // of what the optimizer keeps, in the order of `moment_names`
  std::vector<std::string> moment_names;  // "exp_avg", …
  std::string run;                        // of fsdp_dtensor::RunTensors
};

// What the checkpoints of one run have in common: their tensors, what fills them, and who writes
// which rows.
struct SavedTensors {
  std::vector<TargetTensor> tensors;
  // Parallel to `tensors`. A writer is a file of the state's source.
  std::vector<TensorRecipe> recipes;
  std::vector<std::vector<dcp::PlacedRows>> placed;
  // Parameters that the optimizer updates, by their live names, and whether they decay: those of
  // two dims or more that are no bias do, as in Megatron.
  std::map<std::string, bool> decays;
};

// Planned once a run: only values of the state change from save to save. `args` are Megatron's and
// say what model it is; `choices` are those of the format: "transformer_impl", "expert_names". A
// pure function: every rank plans the same.
//
// Errors: kUnsupported (a family without tables, or rows of the target that come from several
//         source files), kMissing, kShapeMismatch (the state is not that of the model that `args`
//         describe), those of CheckRecipes.
Result<SavedTensors> PlanSavedTensors(const RunningState& state, const layout::Configuration& args,
                                      const layout::Choices& choices);

// Whether the weights of `state` are those of the published model that `hf_config` describes, so that a repository can be
// made of them. Rows that pad the vocabulary are left behind.
// Errors: those of MatchModel and ViewModel.
Status CheckSavesAsModel(const RunningState& state, layout::Configuration hf_config);

struct TrainingSave {
  ConversionPlan plan;
  std::vector<int>
      writers;  // parallel to plan.write.files: the file of the source that each is made from
};

// A checkpoint directory (no root around it) with the whole of `run`. Tensors go to the files of
// their writers; objects and side files go to writer 0. A pure function: every rank plans the same.
//
// `run.group_of` is filled in: what decays goes to the first group, the rest to the last.
//
// REQUIRES: `run.args` describe the model that `saved` is of. Errors: those of PlanDcp and
// CheckWritePlan.
Result<TrainingSave> PlanTrainingSave(const SavedTensors& saved, TrainingRun run,
                                      const std::vector<WriteCopy>& side_files);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_VERBS_SAVE_TRAINING_STATE_H_

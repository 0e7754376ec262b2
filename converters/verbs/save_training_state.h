// Planning the checkpoint of a training run from the state that its ranks hold.
#ifndef CKPT_CONVERTERS_VERBS_SAVE_TRAINING_STATE_H_
#define CKPT_CONVERTERS_VERBS_SAVE_TRAINING_STATE_H_

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "converters/verbs/side_files.h"
#include "core/base/result.h"
#include "core/checkpoint/chosen_forms.h"
#include "core/checkpoint/empty_objects.h"
#include "core/checkpoint/source.h"
#include "core/checkpoint/write_plan.h"
#include "core/layout/resolve.h"
#include "core/layout/value.h"
#include "core/plan/conversion_plan.h"
#include "core/plan/follow_chunks.h"
#include "core/training/training_run.h"
#include "formats/format.h"

namespace ckpt {

// The state in memory, tensors under the trainer's names ("decoder.layers.0.mlp.linear_fc1.weight")
// behind a prefix that says what they are. A file of the source is a process's memory, and it
// writes what lies there.
struct StateInMemory {
  std::shared_ptr<const CheckpointSource> source;
  std::string weights;               // prefix of the weights
  std::vector<std::string> moments;  // of what the optimizer keeps, in the order of `moment_names`
  std::vector<std::string> moment_names;  // "exp_avg", …
  std::string run;                        // of RunFormat::run_tensors
  std::set<std::string> decayed;          // parameters to which weight decay applies
};

// What a run is saved as: the whole state where the format has a place for it (FormOfRun), else the
// weights.
struct SaveTarget {
  const Format* format = nullptr;
  layout::Choices
      choices;             // "transformer_impl", "expert_names": those that the naming has are used
  ChosenForms forms = {};  // of the format's
};

// What the checkpoints of one run have in common: their tensors, what fills them, and who writes
// which rows.
struct SavedTensors {
  SaveTarget target;
  std::string family;  // of the layout table
  std::vector<TargetTensor> tensors;
  // Parallel to `tensors`.
  std::vector<TensorRecipe> recipes;
  std::vector<std::vector<RowsFromFile>> placed;
  std::vector<EmptyObjects> objects;  // of the format's naming
  // Parameters that the optimizer updates, by their names in the format, and whether they decay.
  std::map<std::string, bool> decays;
};

// Planned once a run: only values of the state change from save to save. `model` says what the
// layout tables ask of it, and may say choices that `target` leaves open (DescribeForm). A pure
// function: every process plans the same.
//
// Errors: kUnsupported (a family without tables, or rows of the target that come from several
// source files), kMissing, kShapeMismatch (the state is not that of `model`), those of
// CheckRecipes.
Result<SavedTensors> PlanSavedTensors(const StateInMemory& state,
                                      const layout::Configuration& model, SaveTarget target);

struct TrainingSave {
  ConversionPlan plan;
  std::vector<int> writers;  // parallel to plan.write.items: the process that writes each
};

// A checkpoint directory (no root around it) with `run` where the format holds it, and the side
// files of the model. A pure function: every process plans the same.
//
// `run.group_of` is filled in: what decays goes to the first group, the rest to the last.
//
// REQUIRES: `run.args` describe the model that `saved` is of. Errors: those of RunFormat::plan,
// PlanWeights, CutItems and CheckWritePlan.
Result<TrainingSave> PlanTrainingSave(const SavedTensors& saved, TrainingRun run,
                                      CarriedFiles files);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_VERBS_SAVE_TRAINING_STATE_H_

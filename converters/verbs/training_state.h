// TrainingState: a checkpoint understood as a training run: weights, optimizer, schedule, progress.
#ifndef CKPT_CONVERTERS_VERBS_TRAINING_STATE_H_
#define CKPT_CONVERTERS_VERBS_TRAINING_STATE_H_

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "converters/config/own_args.h"
#include "converters/verbs/model_source.h"
#include "core/base/result.h"
#include "core/io/storage.h"
#include "core/layout/value.h"
#include "core/training/run_format.h"
#include "core/training/training_run.h"

namespace ckpt {

struct TrainingState {
  ModelSource weights;  // the exact ones, where the checkpoint has rounded copies besides
  // What the optimizer keeps for every weight, a model of the same names and shapes each: exp_avg
  // and exp_avg_sq of Adam, momentum_buffer of SGD. Tensors that are not trained have none.
  std::vector<ModelSource> moments;
  std::vector<std::string> moment_names;  // parallel: "exp_avg", …
  // A tensor of every parameter that the optimizer updates: the first of `moments`. Where it keeps
  // none the weights themselves: those that the run names, else those with a rounded copy, else
  // all.
  ModelSource updated;
  TrainingRun run;
  layout::Configuration args;  // of `run`, by their names (RunSettings translates them)
  OwnFacts facts;              // what a run of ours noted when it saved
  // What of the checkpoint is in `moments`, in `weights` beside the rounded copies, and in `run`:
  // keys of tensors, and keys of objects or how they begin.
  std::set<std::string> tensors;
  std::vector<std::string> objects;
  std::set<std::string> main_weights;  // those of `tensors` that are exact weights
  std::vector<UnreadMember> unread;    // of `objects`
  std::vector<Problem> warnings;       // as in StoredRun
  std::vector<Problem> assumptions;    // as in StoredRun
  SettingNames said;                   // as in StoredRun

  // Whether the object under `key` is among `objects`.
  [[nodiscard]] bool IsOfRun(std::string_view key) const;
};

// Opens what a run saved. Rows of weights and moments come from a WeightReader over each model.
//
// Errors: those of OpenModel, ReadStoredRun and ReadOwnFacts; kMissing (the optimizer has a state
// for the copy of a tied weight alone, or keeps nothing and has a parameter that is no weight),
// kValueMismatch (the two are in groups that differ).
Result<TrainingState> OpenTrainingState(Storage& storage, const Path& path,
                                        const OpenModelOptions& options);

// The same for a checkpoint that is open already; `options.open` is not looked at.
Result<TrainingState> UnderstandTrainingState(Storage& storage,
                                              std::shared_ptr<const OpenedCheckpoint> checkpoint,
                                              const OpenModelOptions& options,
                                              RunDetail detail = RunDetail::kToResume);

// The optimizer's tensors alone, whatever the checkpoint says of the run: nothing of the state is
// filled in that comes from objects. Nothing if the checkpoint holds none. Errors: those of
// UnderstandModel and FindOptimizerTensors.
Result<std::optional<TrainingState>> UnderstandOptimizer(Storage& storage, const ModelSource& model,
                                                         const OpenModelOptions& options);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_VERBS_TRAINING_STATE_H_

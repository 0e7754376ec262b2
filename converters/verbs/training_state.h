// TrainingState: a checkpoint understood as a training run: weights, optimizer, schedule, progress.
#ifndef CKPT_CONVERTERS_VERBS_TRAINING_STATE_H_
#define CKPT_CONVERTERS_VERBS_TRAINING_STATE_H_

#include <memory>
#include <vector>

#include "converters/config/own_args.h"
#include "converters/verbs/model_source.h"
#include "core/base/result.h"
#include "core/io/storage.h"
#include "core/layout/value.h"
#include "core/training/training_run.h"

namespace ckpt {

struct TrainingState {
  ModelSource weights;
  // What the optimizer keeps for every weight, a model of the same names and shapes each: exp_avg
  // and exp_avg_sq of Adam, momentum_buffer of SGD. Tensors that are not trained have none.
  std::vector<ModelSource> moments;
  TrainingRun run;
  layout::Configuration args;  // of `run`, by their names (RunSettings translates them)
  OwnFacts facts;              // what a run of ours noted when it saved
};

// Opens what a run saved. Rows of weights and moments come from a WeightReader over each model.
//
// Errors: those of OpenModel, ReadStoredRun and ReadOwnFacts.
Result<TrainingState> OpenTrainingState(Storage& storage, const Path& path,
                                        const OpenModelOptions& options);

// The same for a checkpoint that is open already; `options.open` is not looked at.
Result<TrainingState> UnderstandTrainingState(Storage& storage,
                                              std::shared_ptr<const OpenedCheckpoint> checkpoint,
                                              const OpenModelOptions& options);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_VERBS_TRAINING_STATE_H_

// TrainingState: a checkpoint understood as a training run: weights, optimizer, schedule, progress.
#ifndef CKPT_CONVERTERS_VERBS_TRAINING_STATE_H_
#define CKPT_CONVERTERS_VERBS_TRAINING_STATE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "converters/verbs/model_source.h"
#include "core/base/result.h"
#include "core/io/storage.h"
#include "core/layout/value.h"

namespace ckpt {

struct TrainingState {
  ModelSource weights;
  // What the optimizer keeps for every weight, a model of the same names and shapes each: exp_avg and
  // exp_avg_sq of Adam, momentum_buffer of SGD. Tensors that are not trained have none.
  std::vector<ModelSource> moments;
  layout::Configuration args;         // of the run (RunSettings translates them)
  std::int64_t iteration = 0;         // finished ones
  std::int64_t finished_updates = 0;  // of the optimizer, and of the learning rate
  std::int64_t consumed_samples = 0;  // of the training data
  std::optional<std::int64_t> seed = {};
  // What a run of ours noted when it saved (own_args.h): a digest of all of the state, the loss of the batch
  // that comes next, which run it was, and which data the consumed samples are counted in.
  std::optional<std::string> state_digest = {};
  std::optional<double> next_loss = {};
  std::optional<std::string> run_id = {};
  std::optional<std::string> data_identity = {};
};

// Opens what Megatron-FSDP saved. Rows of weights and moments come from a WeightReader over each model.
//
// Errors: those of OpenModel; kMissing (moments, or a count, are not there: all of them; a checkpoint of weights only has
//         none), kUnsupported (parameters are at different updates, or the learning rate is at another one than the
//         optimizer), kBadMetadata.
Result<TrainingState> OpenTrainingState(Storage& storage, const Path& path,
                                        const OpenModelOptions& options);

// The same for a checkpoint that is open already; `options.open` is not looked at.
Result<TrainingState> UnderstandTrainingState(Storage& storage,
                                              std::shared_ptr<const OpenedCheckpoint> checkpoint,
                                              const OpenModelOptions& options);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_VERBS_TRAINING_STATE_H_

// Loads a stored training state into one rank of a run.
#ifndef CKPT_TRAINER_RUN_INTERNAL_LOAD_STATE_H_
#define CKPT_TRAINER_RUN_INTERNAL_LOAD_STATE_H_

#include <cstdint>

#include "converters/verbs/training_state.h"
#include "core/base/status.h"
#include "core/exec/progress.h"
#include "trainer/run/run_progress.h"
#include "trainer/step/rank_trainer.h"

namespace ckpt::train {

// Reads the rows of weights and buffers that this rank owns, within `budget_bytes`, for a new run.
// Adds their bytes in float32 to the progress, and says so if they are rounded to it. Errors: those
// of CheckFits and WeightReader.
Status LoadWeights(const ModelSource& model, std::uint64_t budget_bytes,
                   trainer::RankTrainer& trainer, const LoadVoice& voice);

// Reads the rows that this rank owns of weights and buffers and, if the state has them, of moments;
// and the number of updates. Adds their bytes to `progress`, unless it is null.
//
// Errors: those of CheckFits and WeightReader; kUnsupported (the state belongs to another
// optimizer, or its parameter groups say what the trainer does not do).
Status LoadState(const TrainingState& state, trainer::RankTrainer& trainer, ProgressSink* progress);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_INTERNAL_LOAD_STATE_H_

// What of two training runs stands for each other, beyond the models' weights.
#ifndef CKPT_CONVERTERS_VERBS_INTERNAL_COMPARE_RUNS_H_
#define CKPT_CONVERTERS_VERBS_INTERNAL_COMPARE_RUNS_H_

#include "converters/verbs/comparison.h"
#include "converters/verbs/model_source.h"
#include "converters/verbs/training_state.h"
#include "core/base/status.h"

namespace ckpt {

struct RunSide {
  const ModelSource& weights;  // as the checkpoint has them, perhaps rounded
  const TrainingState& state;
};

// Adds moments and exact weights to `comparison`, which has the pairs of the weights, and compares
// the settings if it says of neither side why not. What takes part is left out no more.
//
// Errors, after which `comparison` is as it was: those of ViewModel (what the optimizers keep of
// the weights cannot be brought into one form).
Status CompareRuns(const RunSide& a, const RunSide& b, Comparison& comparison);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_VERBS_INTERNAL_COMPARE_RUNS_H_

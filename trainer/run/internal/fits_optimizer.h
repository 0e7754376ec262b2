// Checks that the trainer's optimizer does what a stored run's parameter groups say.
#ifndef CKPT_TRAINER_RUN_INTERNAL_FITS_OPTIMIZER_H_
#define CKPT_TRAINER_RUN_INTERNAL_FITS_OPTIMIZER_H_

#include <vector>

#include "converters/verbs/training_state.h"
#include "core/base/status.h"
#include "core/training/training_run.h"
#include "trainer/step/train_config.h"

namespace ckpt::train {

// Whether every parameter of the groups decays, biases and other vectors included.
[[nodiscard]] bool AllDecay(const std::vector<ParamGroup>& groups);

// The trainer has one learning rate and one weight decay for all parameters, but for those without
// decay. Errors: kUnsupported, for every setting of a group that is another.
Status CheckGroupsAreAlike(const TrainingState& state);

// Compares what decays.
//
// Errors: kUnsupported, for every parameter that decays in one and not in the other, but only the
// first of many; those of OptimizerGroups and ViewModel.
Status CheckDecaysAlike(const TrainingState& state, const trainer::TrainConfig& config);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_INTERNAL_FITS_OPTIMIZER_H_

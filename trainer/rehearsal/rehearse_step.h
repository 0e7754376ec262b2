// A micro-batch's way through the model without numbers: what memory it takes.
#ifndef CKPT_TRAINER_REHEARSAL_REHEARSE_STEP_H_
#define CKPT_TRAINER_REHEARSAL_REHEARSE_STEP_H_

#include <cstdint>

#include "core/base/result.h"
#include "trainer/step/train_config.h"

namespace ckpt::trainer {

// Most bytes of activations that a rank holds in training and in evaluations: the model's own code runs, on a device that
// counts, so that nothing is estimated. Experts are taken to be chosen equally often: where they are shared out over ranks,
// a rank whose experts are chosen more often holds more.
//
// REQUIRES: ValidateTrainConfig accepts `config`; 0 <= rank < config.mesh.world_size. Errors: those of Model::Create.
Result<std::uint64_t> RehearseActivations(const TrainConfig& config, int rank);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_REHEARSAL_REHEARSE_STEP_H_

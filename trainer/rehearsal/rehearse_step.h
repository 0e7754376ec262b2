// A micro-batch's way through the model without numbers: what memory it takes.
#ifndef CKPT_TRAINER_REHEARSAL_REHEARSE_STEP_H_
#define CKPT_TRAINER_REHEARSAL_REHEARSE_STEP_H_

#include <cstdint>

#include "core/base/result.h"
#include "trainer/step/train_config.h"

namespace ckpt::trainer {

// What the model of a rank holds at its peak, in training and in evaluations.
struct RehearsedBytes {
  std::uint64_t activations = 0;
  std::uint64_t tables = 0;  // of positions, of experts' counts and biases
};

// The model's own code runs, on a device that counts, so that nothing is estimated. Experts are taken to be chosen equally
// often: where they are shared out over ranks, a rank whose experts are chosen more often holds more.
//
// REQUIRES: ValidateTrainConfig accepts `config`; 0 <= rank < config.mesh.world_size. Errors: those of Model::Create.
Result<RehearsedBytes> RehearseStep(const TrainConfig& config, int rank);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_REHEARSAL_REHEARSE_STEP_H_

// Runs a micro-batch through the model without computing, to find what memory it takes.
#ifndef CKPT_TRAINER_STEP_REHEARSE_STEP_H_
#define CKPT_TRAINER_STEP_REHEARSE_STEP_H_

#include <cstdint>

#include "core/base/result.h"
#include "trainer/step/train_config.h"

namespace ckpt::trainer {

// The peak memory of a rank's model, in training and in evaluations.
struct RehearsedBytes {
  std::uint64_t activations = 0;
  std::uint64_t tables = 0;  // of positions, and of experts' counts and biases
};

// Runs the model's own code on a device that counts, so nothing is estimated. The number of tokens
// decides how much memory is allocated; it does not depend on which experts they choose.
//
// REQUIRES: ValidateTrainConfig accepts `config`; 0 <= rank < config.mesh.world_size. Errors: those
// of Model::Create.
Result<RehearsedBytes> RehearseStep(const TrainConfig& config, int rank);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_STEP_REHEARSE_STEP_H_

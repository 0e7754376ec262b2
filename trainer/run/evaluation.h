// The loss over some batches of data that are not used for training.
#ifndef CKPT_TRAINER_RUN_EVALUATION_H_
#define CKPT_TRAINER_RUN_EVALUATION_H_

#include <cstdint>
#include <functional>
#include <optional>

#include "core/base/result.h"
#include "trainer/data/batch_reader.h"
#include "trainer/step/rank_trainer.h"

namespace ckpt::train {

// The loss over the first `num_batches` of `batches`, each of the run's global batch size: always
// the same ones. It is the mean of their losses, or the mean over all their tokens if a step's loss
// is (`calculate_per_token_loss`). Every rank calls it. All ranks call `goes_on`
// before each batch, with the outcome of reading it; if it returns false, the result is empty.
//
// REQUIRES: num_batches > 0. Errors: those of `goes_on` and RankTrainer::Evaluate.
Result<std::optional<trainer::Evaluation>> EvaluateBatches(
    trainer::RankTrainer& trainer, const trainer::BatchReader& batches, std::int64_t num_batches,
    const std::function<Result<bool>(const Status& read)>& goes_on);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_EVALUATION_H_

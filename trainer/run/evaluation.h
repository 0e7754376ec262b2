// The loss over some batches of data that is not trained on.
#ifndef CKPT_TRAINER_RUN_EVALUATION_H_
#define CKPT_TRAINER_RUN_EVALUATION_H_

#include <cstdint>
#include <functional>
#include <optional>

#include "core/base/result.h"
#include "trainer/data/batch_reader.h"
#include "trainer/step/rank_trainer.h"

namespace ckpt::train {

// Over the first `num_batches` of `batches`, each of the run's global batch size: always the same ones. The mean of their
// losses; over all their tokens where a step's loss is (`calculate_per_token_loss`). Every rank calls it, and all ask
// `goes_on` between batches: nothing if it says no.
//
// REQUIRES: num_batches > 0. Errors: those of BatchReader, RankTrainer::Evaluate and `goes_on`.
Result<std::optional<trainer::Evaluation>> EvaluateBatches(
    trainer::RankTrainer& trainer, const trainer::BatchReader& batches, std::int64_t num_batches,
    const std::function<Result<bool>()>& goes_on);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_EVALUATION_H_

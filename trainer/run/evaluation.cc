#include "trainer/run/evaluation.h"

#include <utility>

#include <fmt/format.h>

#include "trainer/data/batch_ahead.h"

namespace ckpt::train {

Result<std::optional<trainer::Evaluation>> EvaluateBatches(
    trainer::RankTrainer& trainer, const trainer::BatchReader& batches, std::int64_t num_batches,
    const std::function<Result<bool>(const Status& read)>& goes_on) {
  trainer::BatchAhead ahead(batches, batches.SamplesOf(num_batches));
  const bool per_token = trainer.config().per_token_loss;
  trainer::Evaluation total;
  double weights = 0;
  for (std::int64_t i = 0; i < num_batches; ++i) {
    const Result<trainer::BatchAhead::Batch> batch = ahead.Take(batches.SamplesOf(i));
    CKPT_ASSIGN_OR_RETURN(const bool is_wanted, goes_on(batch.ok() ? OkStatus() : batch.status()));
    if (!is_wanted) return std::optional<trainer::Evaluation>();
    Result<trainer::Evaluation> one = trainer.Evaluate(*batch);
    if (!one.ok()) {
      return std::move(one).status().While(fmt::format("evaluating global samples {} to {}",
                                                       batches.SamplesOf(i),
                                                       batches.SamplesOf(i + 1) - 1));
    }
    const double weight = per_token ? static_cast<double>(one->tokens) : 1;
    total.loss += weight * one->loss;
    total.tokens += one->tokens;
    weights += weight;
  }
  if (weights > 0) total.loss /= weights;
  return std::optional(total);
}

}  // namespace ckpt::train

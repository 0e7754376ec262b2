#include "trainer/run/evaluation.h"

#include <utility>
#include <vector>

#include <fmt/format.h>

namespace ckpt::train {

Result<std::optional<trainer::Evaluation>> EvaluateBatches(
    trainer::RankTrainer& trainer, const trainer::BatchReader& batches, std::int64_t num_batches,
    const std::function<Result<bool>()>& goes_on) {
  const bool per_token = trainer.config().per_token_loss;
  trainer::Evaluation total;
  double weights = 0;
  for (std::int64_t i = 0; i < num_batches; ++i) {
    CKPT_ASSIGN_OR_RETURN(const bool is_wanted, goes_on());
    if (!is_wanted) return std::optional<trainer::Evaluation>();
    CKPT_ASSIGN_OR_RETURN(const std::vector<trainer::HostMicroBatch> batch,
                          batches.ReadStep(batches.SamplesOf(i)));
    Result<trainer::Evaluation> one = trainer.Evaluate(batch);
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

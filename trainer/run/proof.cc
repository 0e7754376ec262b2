#include "trainer/run/proof.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <fmt/format.h>

namespace ckpt::train {
namespace {

double ToleranceOf(const trainer::TrainConfig& config) {
  return config.precision.compute == DType::kBfloat16 ? 1e-3 : 1e-6;
}

}  // namespace

double Proof::RelativeDifference() const {
  return std::abs(actual - expected) /
         std::max(std::abs(expected), std::numeric_limits<double>::min());
}

std::string Proof::Text(std::int64_t iteration) const {
  return fmt::format(
      "loss of the batch after step {}: {:.9g}, stored {:.9g}, relative difference {:.2g}",
      iteration, actual, expected, RelativeDifference());
}

Result<Proof> ComputeProof(const RunProgress& loaded, const trainer::BatchReader& batches,
                           trainer::RankTrainer& trainer) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<trainer::HostMicroBatch> batch,
                        batches.ReadStep(loaded.consumed_samples));
  CKPT_ASSIGN_OR_RETURN(const trainer::Evaluation evaluation, trainer.Evaluate(batch));
  return Proof{.expected = loaded.next_loss.value(),
               .actual = evaluation.loss,
               .tolerance = ToleranceOf(trainer.config())};
}

}  // namespace ckpt::train

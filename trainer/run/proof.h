// Proof that a checkpoint was resumed correctly: the loss of the next batch equals the stored one.
#ifndef CKPT_TRAINER_RUN_PROOF_H_
#define CKPT_TRAINER_RUN_PROOF_H_

#include <string>

#include "core/base/result.h"
#include "trainer/data/batch_reader.h"
#include "trainer/run/run_progress.h"
#include "trainer/step/rank_trainer.h"

namespace ckpt::train {

struct Proof {
  double expected = 0;  // as stored
  double actual = 0;
  double tolerance = 0;  // relative: 1e-6, or 1e-3 if compute weights are bfloat16

  [[nodiscard]] double RelativeDifference() const;
  [[nodiscard]] bool holds() const { return RelativeDifference() <= tolerance; }
  // "loss of the batch after step 100: 2.34567, stored 2.34567, relative difference 1.2e-8".
  [[nodiscard]] std::string Text(std::int64_t iteration) const;
};

// Computes the loss of the batch after `loaded`. Every rank calls it.
//
// REQUIRES: loaded.next_loss. Errors: those of BatchReader and RankTrainer::Evaluate.
Result<Proof> ComputeProof(const RunProgress& loaded, const trainer::BatchReader& batches,
                           trainer::RankTrainer& trainer);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_PROOF_H_

// Which samples a loss or a gradient that is not finite came from.
#ifndef CKPT_TRAINER_RUN_INTERNAL_BAD_BATCH_H_
#define CKPT_TRAINER_RUN_INTERNAL_BAD_BATCH_H_

#include <cstdint>

#include "core/base/status.h"
#include "trainer/comm/communicator.h"
#include "trainer/data/batch_reader.h"
#include "trainer/step/rank_trainer.h"

namespace ckpt::train {

// A step that failed.
struct FailedStep {
  std::int64_t step = 0;
  std::int64_t consumed_samples = 0;  // before it
};

// `failure` of RankTrainer::Step with the step's number and the global samples: those of the first micro-batch of any rank
// whose loss is not finite, else of the whole step. The same on every rank; all of them call it.
//
// REQUIRES: `failure` is kValueMismatch.
Status NameBadBatch(const Status& failure, const FailedStep& failed,
                    const trainer::BatchReader& batches, const trainer::RankTrainer& trainer,
                    trainer::Communicator& world);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_INTERNAL_BAD_BATCH_H_

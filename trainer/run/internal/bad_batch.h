// Names the samples from which a loss or a gradient that is not finite came.
#ifndef CKPT_TRAINER_RUN_INTERNAL_BAD_BATCH_H_
#define CKPT_TRAINER_RUN_INTERNAL_BAD_BATCH_H_

#include <cstdint>

#include "core/base/status.h"
#include "trainer/comm/host_group.h"
#include "trainer/data/batch_reader.h"
#include "trainer/step/rank_trainer.h"

namespace ckpt::train {

// A step that failed.
struct FailedStep {
  std::int64_t step = 0;
  std::int64_t consumed_samples = 0;  // before the step
};

// Adds to `failure` of RankTrainer::Step the step's number and the global samples. They are the
// samples of the first micro-batch of any rank whose loss is not finite, or those of the whole step
// if there is none. Equal on every rank; every rank calls it.
//
// REQUIRES: `failure` is kValueMismatch.
Status NameBadBatch(const Status& failure, const FailedStep& failed,
                    const trainer::BatchReader& batches, const trainer::RankTrainer& trainer,
                    trainer::HostGroup& world);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_INTERNAL_BAD_BATCH_H_

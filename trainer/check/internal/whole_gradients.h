// Gathers the gradients of a sharded run into whole tensors.
#ifndef CKPT_TRAINER_CHECK_INTERNAL_WHOLE_GRADIENTS_H_
#define CKPT_TRAINER_CHECK_INTERNAL_WHOLE_GRADIENTS_H_

#include <vector>

#include "core/base/result.h"
#include "core/checkpoint/memory_source.h"
#include "trainer/comm/host_group.h"
#include "trainer/step/rank_trainer.h"

namespace ckpt::train {

// What `ComputeGradients` left on all ranks of `world`, in float32 under the trainer's names. Every
// rank calls it; rank 0 gets the tensors, the others get none. One flat array is sent at a time.
//
// Errors: kCancelled (a rank is gone), kCoverage (a bug: no rank holds some rows), those of the
// queue.
Result<std::vector<MemoryTensor>> GatherGradients(trainer::RankTrainer& trainer,
                                                  trainer::HostGroup& world);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_CHECK_INTERNAL_WHOLE_GRADIENTS_H_

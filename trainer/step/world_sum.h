// Exact sums over all ranks.
#ifndef CKPT_TRAINER_STEP_WORLD_SUM_H_
#define CKPT_TRAINER_STEP_WORLD_SUM_H_

#include <span>

#include "core/base/result.h"
#include "trainer/comm/host_group.h"
#include "trainer/step/exact_sum.h"

namespace ckpt::trainer {

// Replaces each sum by its total over the ranks of `world`. Every rank calls it with the same
// number of sums.
// Errors: kCancelled (a rank is gone).
Status SumOverRanks(HostGroup& world, std::span<ExactSum> sums);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_STEP_WORLD_SUM_H_

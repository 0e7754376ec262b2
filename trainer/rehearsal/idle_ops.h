// Ops that compute nothing, for a rehearsal.
#ifndef CKPT_TRAINER_REHEARSAL_IDLE_OPS_H_
#define CKPT_TRAINER_REHEARSAL_IDLE_OPS_H_

#include <memory>

#include "trainer/ops/ops.h"

namespace ckpt::trainer {

// Results are left as they are, but for where experts' rows lie: as if all experts were chosen equally often.
[[nodiscard]] std::unique_ptr<Ops> MakeIdleOps();

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_REHEARSAL_IDLE_OPS_H_

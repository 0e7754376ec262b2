// Ops for a rehearsal: they compute nothing.
#ifndef CKPT_TRAINER_REHEARSAL_IDLE_OPS_H_
#define CKPT_TRAINER_REHEARSAL_IDLE_OPS_H_

#include <memory>

#include "trainer/ops/ops.h"

namespace ckpt::trainer {

// All results are left unchanged: the size of no allocation depends on them.
[[nodiscard]] std::unique_ptr<Ops> MakeIdleOps();

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_REHEARSAL_IDLE_OPS_H_

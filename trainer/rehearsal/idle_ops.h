// Ops for a rehearsal: they compute nothing.
#ifndef CKPT_TRAINER_REHEARSAL_IDLE_OPS_H_
#define CKPT_TRAINER_REHEARSAL_IDLE_OPS_H_

#include <memory>

#include "trainer/ops/ops.h"

namespace ckpt::trainer {

// Results are left unchanged, except for the places of experts' rows: these are as if all experts
// were chosen equally often.
[[nodiscard]] std::unique_ptr<Ops> MakeIdleOps();

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_REHEARSAL_IDLE_OPS_H_

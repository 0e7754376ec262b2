// A group for a rehearsal: its other ranks are taken to do the same as this one.
#ifndef CKPT_TRAINER_REHEARSAL_IDLE_GROUP_H_
#define CKPT_TRAINER_REHEARSAL_IDLE_GROUP_H_

#include <memory>

#include "trainer/comm/host_group.h"

namespace ckpt::trainer {

// In an exchange, all ranks have this rank's bytes. It exchanges nothing else and cannot be split.
[[nodiscard]] std::unique_ptr<HostGroup> MakeIdleGroup(int rank, int size);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_REHEARSAL_IDLE_GROUP_H_

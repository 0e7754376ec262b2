// A group for a rehearsal: its other ranks are taken to do the same as this one.
#ifndef CKPT_TRAINER_REHEARSAL_IDLE_COMM_H_
#define CKPT_TRAINER_REHEARSAL_IDLE_COMM_H_

#include <memory>

#include "trainer/comm/communicator.h"

namespace ckpt::trainer {

// Collectives leave tensors unchanged; in an exchange of the host, all ranks have this rank's
// bytes. It cannot be split.
[[nodiscard]] std::unique_ptr<Communicator> MakeIdleComm(int rank, int size);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_REHEARSAL_IDLE_COMM_H_

// A group whose other ranks do what this one does, for a rehearsal.
#ifndef CKPT_TRAINER_REHEARSAL_IDLE_COMM_H_
#define CKPT_TRAINER_REHEARSAL_IDLE_COMM_H_

#include <memory>

#include "trainer/comm/communicator.h"

namespace ckpt::trainer {

// Tensors stay where they are; in an exchange of the host all ranks have what this one has. It cannot be split.
[[nodiscard]] std::unique_ptr<Communicator> MakeIdleComm(int rank, int size);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_REHEARSAL_IDLE_COMM_H_

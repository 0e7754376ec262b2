// Ranks as MPI processes.
#ifndef CKPT_TRAINER_COMM_MPI_COMM_H_
#define CKPT_TRAINER_COMM_MPI_COMM_H_

#include <functional>

#include "core/base/result.h"
#include "trainer/comm/communicator.h"
#include "trainer/device/host_device.h"

namespace ckpt::trainer {

// Starts MPI, runs `body(world)` as this process's rank of all that were started together, and ends
// MPI: once in the life of a process. `queues` says from which threads the ranks communicate. A
// rank that fails says why on stderr and ends every process, its own too: MPI gives up in no other
// way, and so does `Communicator::Abort`. Where several fail alike one of them says it. Every communicator is gone when `body` returns.
//
// Errors: kCancelled (another rank failed before it ran, see FailTogether), kUnsupported (built without CKPT_WITH_MPI, or MPI
// lacks the thread support), kUsage (second call), kIo (MPI).
Status RunMpiRank(QueueMode queues, const std::function<Status(Communicator& world)>& body);

// For a process whose rank failed before it ran, while the others come to RunMpiRank: tells them, so that none waits for it.
// The first of those that failed calls `speak`, for all of them. None returns before it has: the launcher ends all processes
// when one of them ends with an error. Instead of RunMpiRank, by a process that would have called it. Errors: as RunMpiRank.
Status FailTogether(const Status& failure, const std::function<void()>& speak);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_COMM_MPI_COMM_H_

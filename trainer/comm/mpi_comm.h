// Ranks as MPI processes.
#ifndef CKPT_TRAINER_COMM_MPI_COMM_H_
#define CKPT_TRAINER_COMM_MPI_COMM_H_

#include <functional>

#include "core/base/result.h"
#include "trainer/comm/host_group.h"

namespace ckpt::trainer {

// Starts MPI, runs `body(world)` as this process's rank, and ends MPI. A process can do it once.
// The world is all processes that were started together. `from_threads`: ranks call their groups
// from threads of their own, such as those of queues. A rank that fails prints why on stderr and ends every process, its own too: MPI has
// no other way to give up. `HostGroup::Abort` does the same. If several ranks fail alike, only
// one of them prints. `body` destroys every group before it returns.
//
// Errors: kCancelled (another rank failed before it ran, see FailTogether), kUnsupported (built
// without CKPT_WITH_MPI, or MPI lacks the thread support), kUsage (second call), kIo (MPI).
Status RunMpiRank(bool from_threads, const std::function<Status(HostGroup& world)>& body);

// A process calls this instead of RunMpiRank if its rank failed early, while the others do call
// RunMpiRank: it tells them, so that none waits for this rank. Of the ranks that failed, the first
// calls `speak` for all. None returns before that, because the launcher ends all processes when one
// ends with an error. Errors: those of RunMpiRank.
Status FailTogether(const Status& failure, const std::function<void()>& speak);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_COMM_MPI_COMM_H_

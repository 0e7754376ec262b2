// Ranks as MPI processes.
#ifndef CKPT_TRAINER_COMM_MPI_COMM_H_
#define CKPT_TRAINER_COMM_MPI_COMM_H_

#include <chrono>
#include <functional>

#include "core/base/result.h"
#include "trainer/comm/host_group.h"

namespace ckpt::trainer {

struct MpiOptions {
  // Ranks call their groups from threads of their own, such as those of queues.
  bool from_threads = false;
  // A call that takes longer waits for a rank that is missing; 0: it may take as long as it likes.
  std::chrono::milliseconds timeout{0};
};

// Brings the processes together before their ranks run: what all of them need to know how they run,
// one can read for the others. Starts MPI, and runs `body(meeting)`, which returns errors of the
// group alone: ranks whose work failed say so later. The group is not watched, and `body` destroys
// every part of it. Afterwards the process calls RunMpiRank or FailTogether, which go on with this
// MPI. Errors: those of RunMpiRank.
Status MeetEarly(const std::function<Status(HostGroup& meeting)>& body);

// Starts MPI, runs `body(world)` as this process's rank, and ends MPI. A process can do it once.
// The world is all processes that were started together. A rank that fails prints why on stderr and
// ends every process, its own too: MPI has no other way to give up. `HostGroup::Abort` does the
// same. If several ranks fail alike, only one of them prints. A call of a group, or of a track of
// it, that does not end within the time-out ends them in the same way, with the ranks that are
// missing (RollCall). `body` destroys every group before it returns.
//
// Errors: kCancelled (another rank failed before it ran, see FailTogether), kUnsupported (built
// without CKPT_WITH_MPI, MPI lacks the thread support, or did not bring together the processes that
// were started), kUsage (second call), kIo (MPI).
Status RunMpiRank(const MpiOptions& options, const std::function<Status(HostGroup& world)>& body);

// A process calls this instead of RunMpiRank (and MeetEarly) if its rank failed early, while the
// others do call them: it tells them, so that none waits for this rank. Of the ranks that failed,
// the first calls `speak` for all. None returns before that, because the launcher ends all
// processes when one ends with an error. Errors: those of RunMpiRank.
Status FailTogether(const Status& failure, const std::function<void()>& speak);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_COMM_MPI_COMM_H_

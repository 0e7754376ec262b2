#include "trainer/comm/internal/thread_group.h"

#include "trainer/comm/same_call.h"

namespace ckpt::trainer {
namespace {

RankCall CallOf(int rank, const Operands& operands) {
  return {.rank = rank, .name = operands.call, .size_bytes = operands.size_bytes};
}

inline void PauseOnce() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

Status ThreadGroup::Meet(int rank, const Operands& mine) {
  shown_[static_cast<std::size_t>(rank)] = mine;
  CKPT_RETURN_IF_ERROR(Arrive(/*can_cancel=*/true));
  // Every rank sees a difference, so each of them parts here.
  Status status = CheckCalls(rank);
  if (!status.ok()) Part();
  return status;
}

void ThreadGroup::Cancel(const Status& why) {
  std::vector<std::shared_ptr<RankShared>> shared;
  {
    const MutexLock lock(mutex_);
    if (cancelled_.ok()) cancelled_ = why;
    shared = shared_;
  }
  changed_.notify_all();
  for (const std::shared_ptr<RankShared>& object : shared) object->Cancel(why);
}

void ThreadGroup::CancelToo(std::shared_ptr<RankShared> shared) {
  Status cancelled;
  {
    const MutexLock lock(mutex_);
    shared_.push_back(shared);
    cancelled = cancelled_;
  }
  if (!cancelled.ok()) shared->Cancel(cancelled);
}

// A rank that leaves because of a cancellation stays counted as arrived. That is harmless: every
// later arrival sees the cancellation under the mutex, so it cannot complete this meeting.
Status ThreadGroup::Arrive(bool can_cancel) {
  std::uint64_t meeting = 0;
  {
    const MutexLock lock(mutex_);
    if (can_cancel && !cancelled_.ok()) return cancelled_;
    meeting = num_meetings_.load(std::memory_order_relaxed);
    if (++num_arrived_ == size()) {
      num_arrived_ = 0;
      num_meetings_.store(meeting + 1, std::memory_order_release);
      changed_.notify_all();
      return OkStatus();
    }
  }
  for (int i = 0; i < spins_; ++i) {
    if (num_meetings_.load(std::memory_order_acquire) != meeting) return OkStatus();
    PauseOnce();
  }
  MutexLock lock(mutex_);
  while (num_meetings_.load(std::memory_order_relaxed) == meeting) {
    if (can_cancel && !cancelled_.ok()) return cancelled_;
    lock.Wait(changed_);
  }
  return OkStatus();
}

Status ThreadGroup::CheckCalls(int rank) const {
  for (int peer = 0; peer < size(); ++peer) {
    CKPT_RETURN_IF_ERROR(CheckSameCall(CallOf(rank, shown(rank)), CallOf(peer, shown(peer))));
  }
  return OkStatus();
}

}  // namespace ckpt::trainer

// ThreadWatch: ends a process whose ranks are threads where one of them waits in a device for good.
#ifndef CKPT_TRAINER_COMM_INTERNAL_THREAD_WATCH_H_
#define CKPT_TRAINER_COMM_INTERNAL_THREAD_WATCH_H_

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "core/base/mutex.h"
#include "core/base/status.h"
#include "trainer/comm/call_track.h"
#include "trainer/comm/periodic_thread.h"

namespace ckpt::trainer {

// No cancellation reaches a call that waits in a device, nor the thread that waits for it. So it
// ends with the process alone, as all calls do where ranks are processes: if it takes longer than
// the time-out, or goes on although a rank gave up.
//
// Thread-safety: any thread.
class ThreadWatch {
 public:
  using Clock = CallTrack::Clock;

  // A call to which all ranks came before one gave up ends in this time.
  static constexpr std::chrono::seconds kPatience{5};

  // `timeout`: of a call; 0: it may take as long as it likes.
  explicit ThreadWatch(std::chrono::milliseconds timeout) : timeout_(timeout) {}

  [[nodiscard]] std::chrono::milliseconds timeout() const { return timeout_; }
  // Calls of this track are watched for as long as it lives. `rank`: in the world.
  void Add(int rank, const std::shared_ptr<CallTrack>& track) CKPT_EXCLUDES(mutex_);
  // Looks from now on, by a thread of its own, and ends the process at the first error.
  void Start() CKPT_EXCLUDES(mutex_);
  // A rank gave up.
  void Cancel(const Status& why) CKPT_EXCLUDES(mutex_);
  // The process was stopped until now (SIGSTOP, a debugger): the time before does not count.
  void Resume(Clock::time_point now) CKPT_EXCLUDES(mutex_);

  // Errors: kSystem (a call takes too long), kCancelled (one goes on after Cancel). Both name the
  // rank and the call, and what the other ranks wait for.
  Status Look(Clock::time_point now) CKPT_EXCLUDES(mutex_);

 private:
  struct Watched {
    int rank = 0;
    std::weak_ptr<CallTrack> track;
  };
  struct Waiting {
    int rank = 0;
    std::shared_ptr<CallTrack> track;
    CallTrack::Waiting what;
  };

  [[nodiscard]] std::vector<Waiting> WhatIsUnderWay() CKPT_REQUIRES(mutex_);

  const std::chrono::milliseconds timeout_;
  Mutex mutex_;
  std::vector<Watched> tracks_ CKPT_GUARDED_BY(mutex_);
  Status cancelled_ CKPT_GUARDED_BY(mutex_);
  Clock::time_point cancelled_at_ CKPT_GUARDED_BY(mutex_);
  Clock::time_point resumed_at_ CKPT_GUARDED_BY(mutex_);
  std::optional<PeriodicThread> looks_ CKPT_GUARDED_BY(mutex_);  // last, as it uses the others
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_COMM_INTERNAL_THREAD_WATCH_H_

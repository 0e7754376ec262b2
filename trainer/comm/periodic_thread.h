// PeriodicThread: looks at something again and again, on a thread of its own.
#ifndef CKPT_TRAINER_COMM_PERIODIC_THREAD_H_
#define CKPT_TRAINER_COMM_PERIODIC_THREAD_H_

#include <chrono>
#include <functional>
#include <thread>

namespace ckpt::trainer {

// Its owner declares it after what `look` uses, so that it ends before that.
class PeriodicThread {
 public:
  // Calls `look` one `period` from now, and again one `period` after each call, until it is
  // destroyed.
  PeriodicThread(std::chrono::milliseconds period, std::function<void()> look);
  // Waits for a call of `look` that is under way, but not for the end of a period.
  ~PeriodicThread() = default;
  PeriodicThread(const PeriodicThread&) = delete;
  PeriodicThread& operator=(const PeriodicThread&) = delete;

 private:
  std::jthread thread_;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_COMM_PERIODIC_THREAD_H_

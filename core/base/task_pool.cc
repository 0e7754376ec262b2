#include "core/base/task_pool.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <new>
#include <sched.h>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/mutex.h"
#include "core/base/thrown.h"

namespace ckpt {
namespace {

// Keeps the failure of the lowest-numbered task. Third-party code below a task may throw: running
// out of memory must end the task, not the process.
class FirstFailure {
 public:
  void Report(std::size_t task, Status status) CKPT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (!IsFirst(task)) return;
    status_ = std::move(status);
    thrown_ = nullptr;
  }
  // Allocates nothing: there may be no memory left, and a thread cannot report that to its caller.
  void Report(std::size_t task, std::exception_ptr thrown) CKPT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (!IsFirst(task)) return;
    thrown_ = std::move(thrown);
  }
  // Only a hint to stop early, so no ordering is needed.
  [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_relaxed); }
  Status Take() CKPT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return thrown_ != nullptr ? ThrownError(thrown_) : std::move(status_);
  }

 private:
  bool IsFirst(std::size_t task) CKPT_REQUIRES(mutex_) {
    if (failed_.exchange(true, std::memory_order_relaxed) && task >= task_) return false;
    task_ = task;
    return true;
  }

  Mutex mutex_;
  std::atomic<bool> failed_ = false;
  std::size_t task_ CKPT_GUARDED_BY(mutex_) = 0;
  Status status_ CKPT_GUARDED_BY(mutex_);
  std::exception_ptr thrown_ CKPT_GUARDED_BY(mutex_);  // in place of the status
};

}  // namespace

// A batch system gives a job some of a machine's cores; hardware_concurrency() counts all of them.
int DefaultThreads() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) {
    return std::max(1, CPU_COUNT(&allowed));
  }
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));  // more than 1,024
}

Status RunTasks(std::size_t num_tasks, int threads, std::stop_token stop,
                const std::function<Status(std::size_t task, std::size_t worker)>& run) {
  FirstFailure failure;
  // A ticket counter: only atomicity matters, joining the threads orders the rest.
  std::atomic<std::size_t> next = 0;
  const auto work = [&](std::size_t worker) {
    while (!failure.failed()) {
      const std::size_t task = next.fetch_add(1, std::memory_order_relaxed);
      if (task >= num_tasks) return;
      try {
        Status status = stop.stop_requested() ? Error(ErrorKind::kCancelled, "stopped on request")
                                              : run(task, worker);
        if (!status.ok()) failure.Report(task, std::move(status));
      } catch (const std::exception&) {
        failure.Report(task, std::current_exception());
      }
    }
  };
  const std::size_t workers = std::clamp<std::size_t>(
      static_cast<std::size_t>(std::max(threads, 1)), 1, std::max<std::size_t>(num_tasks, 1));
  {
    std::vector<std::jthread> helpers;
    try {
      helpers.reserve(workers - 1);
      for (std::size_t worker = 1; worker < workers; ++worker) helpers.emplace_back(work, worker);
    } catch (const std::system_error&) {
      // The system gives no more threads: the existing ones do the work.
    } catch (const std::bad_alloc&) {
      // The same.
    }
    work(0);
  }
  return failure.Take();
}

}  // namespace ckpt

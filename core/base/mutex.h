// A mutex that clang's thread-safety analysis understands.
#ifndef CKPT_CORE_BASE_MUTEX_H_
#define CKPT_CORE_BASE_MUTEX_H_

#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define CKPT_TSA(x) __attribute__((x))
#else
#define CKPT_TSA(x)
#endif
#define CKPT_GUARDED_BY(m) CKPT_TSA(guarded_by(m))
#define CKPT_REQUIRES(m) CKPT_TSA(requires_capability(m))
#define CKPT_EXCLUDES(m) CKPT_TSA(locks_excluded(m))

namespace ckpt {

class CKPT_TSA(capability("mutex")) Mutex {
 public:
  void Lock() CKPT_TSA(acquire_capability()) { mutex_.lock(); }
  void Unlock() CKPT_TSA(release_capability()) { mutex_.unlock(); }

 private:
  friend class MutexLock;
  std::mutex mutex_;
};

// Holds a Mutex for its lifetime; `Wait` releases it while waiting.
class CKPT_TSA(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) CKPT_TSA(acquire_capability(mutex)) : lock_(mutex.mutex_) {}
  ~MutexLock() CKPT_TSA(release_capability()) = default;
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  // Returns after a notification, possibly a spurious one: call it in a loop over the condition.
  void Wait(std::condition_variable& condition) { condition.wait(lock_); }

 private:
  std::unique_lock<std::mutex> lock_;
};

}  // namespace ckpt

#endif  // CKPT_CORE_BASE_MUTEX_H_

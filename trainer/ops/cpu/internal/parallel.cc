#include "trainer/ops/cpu/internal/parallel.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "core/base/check.h"
#include "core/base/mutex.h"

namespace ckpt::trainer {
namespace {

// Ranges per thread and call. With several, a thread that lost its core for a while does not delay
// the others.
constexpr std::int64_t kRangesPerThread = 4;
// How often a thread looks for what it waits for before it sleeps: about as long as the host takes
// from one call to the next, and less than it takes to wake a thread.
constexpr int kLooks = 1000;

// Looks `kLooks` times whether `holds()`, some nanoseconds apart.
template <typename Condition>
void LookFor(const Condition& holds) {
  for (int i = 0; i < kLooks && !holds(); ++i) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
}

using Body = std::function<void(std::int64_t begin, std::int64_t end)>;

// The work of one call. Threads take ranges until there are no more.
class Job {
 public:
  // Workers that run it. Changed with the mutex of the pool held; without it only a hint.
  std::atomic<int> workers = 0;

  Job(std::int64_t count, std::int64_t range, const Body& body)
      : count_(count), range_(range), body_(body) {}

  // Keeps what the body throws, and lets no thread take a further range then.
  void Run() CKPT_EXCLUDES(mutex_) {
    try {
      RunRanges();
    } catch (const std::exception&) {
      next_.store(count_, std::memory_order_relaxed);
      const MutexLock lock(mutex_);
      if (thrown_ == nullptr) thrown_ = std::current_exception();
    }
  }
  // Throws what the body threw first, if anything.
  void Rethrow() CKPT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (thrown_ != nullptr) std::rethrow_exception(thrown_);
  }

 private:
  void RunRanges() {
    // Relaxed is enough: the ranges are disjoint, and releasing the pool's mutex publishes what
    // threads wrote.
    for (;;) {
      const std::int64_t begin = next_.fetch_add(range_, std::memory_order_relaxed);
      if (begin >= count_) return;
      body_(begin, std::min(begin + range_, count_));
    }
  }

  const std::int64_t count_;
  const std::int64_t range_;
  const Body& body_;
  std::atomic<std::int64_t> next_{0};
  Mutex mutex_;
  std::exception_ptr thrown_ CKPT_GUARDED_BY(mutex_);
};

}  // namespace

struct Parallel::Pool {
  explicit Pool(int workers) {
    try {
      threads.reserve(static_cast<std::size_t>(workers));
      for (int i = 0; i < workers; ++i) threads.emplace_back([this] { Work(); });
    } catch (const std::system_error&) {
      // The system gives no more threads: the existing ones do the work.
    } catch (const std::bad_alloc&) {
      // The same.
    }
  }

  ~Pool() {
    {
      MutexLock lock(mutex);
      is_stopping = true;
    }
    wake.notify_all();
    for (std::thread& thread : threads) thread.join();
  }

  // Returns false, and does nothing, if another call shares its work.
  bool Share(Job& shared) {
    {
      MutexLock lock(mutex);
      if (job != nullptr) return false;
      job = &shared;
      number.fetch_add(1, std::memory_order_relaxed);
    }
    wake.notify_all();
    shared.Run();
    // A worker that has not woken up by now finds no job, so this waits only for workers that have
    // begun.
    {
      MutexLock lock(mutex);
      job = nullptr;
    }
    LookFor([&] { return shared.workers.load(std::memory_order_relaxed) == 0; });
    {
      MutexLock lock(mutex);
      while (shared.workers > 0) lock.Wait(idle);
    }
    shared.Rethrow();
    return true;
  }

  void Work() {
    std::uint64_t done = 0;
    for (;;) {
      Job* mine = nullptr;
      LookFor([&] { return number.load(std::memory_order_relaxed) != done; });
      {
        MutexLock lock(mutex);
        while (!is_stopping && (job == nullptr || number == done)) lock.Wait(wake);
        if (is_stopping) return;
        mine = job;
        done = number;
        ++mine->workers;
      }
      mine->Run();
      MutexLock lock(mutex);
      if (--mine->workers == 0) idle.notify_all();  // of several callers
    }
  }

  Mutex mutex;
  std::condition_variable wake;
  std::condition_variable idle;
  Job* job CKPT_GUARDED_BY(mutex) = nullptr;
  std::atomic<std::uint64_t> number = 0;  // of the last job; changed with the mutex held
  bool is_stopping CKPT_GUARDED_BY(mutex) = false;
  std::vector<std::thread> threads;
};

Parallel::Parallel(int threads) : threads_(threads) {
  CKPT_CHECK(threads >= 1);
  if (threads > 1) pool_ = std::make_unique<Pool>(threads - 1);
}

Parallel::~Parallel() = default;

void Parallel::For(std::int64_t count, std::int64_t grain, const Body& body) {
  if (count <= 0) return;
  const std::int64_t ranges = threads_ * kRangesPerThread;
  const std::int64_t range = std::max({grain, (count + ranges - 1) / ranges, std::int64_t{1}});
  if (pool_ != nullptr && range < count) {
    Job job(count, range, body);
    if (pool_->Share(job)) return;
  }
  body(0, count);
}

}  // namespace ckpt::trainer

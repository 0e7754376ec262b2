#include "trainer/device/cpu/internal/host_queues.h"

#include <chrono>
#include <deque>
#include <functional>
#include <pthread.h>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "core/base/mutex.h"
#include "core/base/thrown.h"

namespace ckpt::trainer {
namespace {

// How far a queue has come. Items are numbered from 1 in the order of enqueueing.
class Progress {
 public:
  // Counts an item that has run or was skipped.
  void Finish(Status status) CKPT_EXCLUDES(mutex_) {
    {
      const MutexLock lock(mutex_);
      ++num_done_;
      if (failure_.ok() && !status.ok()) {
        failure_ = std::move(status);
        failed_item_ = num_done_;
      }
    }
    advanced_.notify_all();
  }

  // Blocks until `num_items` are done. Returns the failure if one of those items failed.
  Status Await(std::uint64_t num_items) CKPT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    while (num_done_ < num_items) lock.Wait(advanced_);
    return failed_item_ <= num_items ? failure_ : OkStatus();
  }

  bool has_failed() CKPT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return !failure_.ok();
  }

 private:
  Mutex mutex_;
  std::condition_variable advanced_;
  std::uint64_t num_done_ CKPT_GUARDED_BY(mutex_) = 0;
  std::uint64_t failed_item_ CKPT_GUARDED_BY(mutex_) = 0;
  Status failure_ CKPT_GUARDED_BY(mutex_);
};

class HostEvent final : public Event::State {
 public:
  HostEvent(std::shared_ptr<Progress> progress, std::uint64_t num_items)
      : progress_(std::move(progress)), num_items_(num_items) {}

  [[nodiscard]] Status Await() const { return progress_->Await(num_items_); }

 private:
  const std::shared_ptr<Progress> progress_;  // the events keep it after the queue is gone
  const std::uint64_t num_items_;
};

class InlineQueue final : public HostQueue {
 public:
  InlineQueue() : HostQueue(/*is_inline=*/true) {}

  void Enqueue(std::function<Status()> work) override {
    if (runs_at_once()) Note(work());
  }
  // Everything has run already, so only a failure needs a state.
  Event Record() override {
    if (failure_.ok()) return Event();
    auto progress = std::make_shared<Progress>();
    progress->Finish(failure_);
    return Event(std::make_shared<HostEvent>(std::move(progress), 1));
  }
  void Wait(const Event& event) override {
    if (runs_at_once()) Note(AwaitHostEvent(event));
  }
  Status Synchronize() override { return failure_; }
  Status Await(const Event& event) override { return AwaitHostEvent(event); }

 private:
  void Note(Status status) {
    if (status.ok()) return;
    failure_ = std::move(status);
    set_has_failed();
  }

  Status failure_;
};

// Sometimes waits for a random time.
class Delays {
 public:
  explicit Delays(std::uint64_t seed) : is_on_(seed != 0), random_(seed) {}

  void Next() {
    if (!is_on_) return;
    const std::uint64_t draw = random_();
    if (draw % 4 != 0) return;
    std::this_thread::sleep_for(std::chrono::microseconds(draw / 4 % kLongestMicroseconds));
  }

 private:
  static constexpr std::uint64_t kLongestMicroseconds = 300;

  const bool is_on_;
  std::mt19937_64 random_;
};

class ThreadQueue final : public HostQueue {
 public:
  ThreadQueue(std::string_view name, std::uint64_t delay_seed)
      : HostQueue(/*is_inline=*/false), delays_(delay_seed), worker_([this] { Run(); }) {
    // The name is for debuggers; the system takes 15 characters.
    pthread_setname_np(worker_.native_handle(), std::string(name.substr(0, 15)).c_str());
  }
  ~ThreadQueue() override {
    {
      const MutexLock lock(mutex_);
      is_closing_ = true;
    }
    changed_.notify_one();  // the worker ends, and the destructor of `worker_` joins it
  }

  void Enqueue(std::function<Status()> work) override {
    {
      const MutexLock lock(mutex_);
      work_.push_back(std::move(work));
    }
    changed_.notify_one();
    ++num_enqueued_;
  }
  Event Record() override { return Event(std::make_shared<HostEvent>(progress_, num_enqueued_)); }
  void Wait(const Event& event) override {
    if (event.state() != nullptr) Enqueue([event] { return AwaitHostEvent(event); });
  }
  Status Synchronize() override { return progress_->Await(num_enqueued_); }
  Status Await(const Event& event) override { return AwaitHostEvent(event); }

 private:
  void Run() {
    while (std::function<Status()> work = Take()) {
      delays_.Next();
      Status status = progress_->has_failed() ? OkStatus() : StatusOfCall(work);
      work = nullptr;  // destroys its captures before any waiter learns that it ran
      progress_->Finish(std::move(status));
    }
  }

  // The next item of work; an empty function once the queue is closing and has no more.
  std::function<Status()> Take() CKPT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    while (work_.empty() && !is_closing_) lock.Wait(changed_);
    if (work_.empty()) return nullptr;
    std::function<Status()> work = std::move(work_.front());
    work_.pop_front();
    return work;
  }

  const std::shared_ptr<Progress> progress_ = std::make_shared<Progress>();
  std::uint64_t num_enqueued_ = 0;  // used by the enqueuing thread only
  Delays delays_;                   // used by the worker only

  Mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<Status()>> work_ CKPT_GUARDED_BY(mutex_);
  bool is_closing_ CKPT_GUARDED_BY(mutex_) = false;

  std::jthread worker_;  // last, so that it joins before the members that it uses are destroyed
};

}  // namespace

Status AwaitHostEvent(const Event& event) {
  if (event.state() == nullptr) return OkStatus();
  return static_cast<const HostEvent&>(*event.state()).Await();
}

std::unique_ptr<HostQueue> MakeInlineQueue() { return std::make_unique<InlineQueue>(); }

std::unique_ptr<HostQueue> MakeThreadQueue(std::string_view name, std::uint64_t delay_seed) {
  return std::make_unique<ThreadQueue>(name, delay_seed);
}

}  // namespace ckpt::trainer

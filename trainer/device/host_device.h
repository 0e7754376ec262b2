// The CPU as a Device: queues run their work at once, or on threads of their own.
#ifndef CKPT_TRAINER_DEVICE_HOST_DEVICE_H_
#define CKPT_TRAINER_DEVICE_HOST_DEVICE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "trainer/device/device.h"

namespace ckpt::trainer {

enum class QueueMode : std::uint8_t {
  kInline,   // enqueued work runs before Enqueue returns
  kThreads,  // every queue has a thread, so that overlap is real and a missing wait shows
};

// A Queue of host work. Every queue of a host device is one.
class HostQueue : public Queue {
 public:
  [[nodiscard]] bool is_inline() const { return is_inline_; }
  // Whether work may run on the caller's thread instead of being enqueued: an inline queue that has
  // not failed.
  [[nodiscard]] bool runs_at_once() const { return is_inline_ && !has_failed_; }
  // Runs `work` behind what was enqueued before. What it returns as an error fails the queue.
  virtual void Enqueue(std::function<Status()> work) = 0;
  void Fail(Status error) final {
    Enqueue([error = std::move(error)] { return error; });
  }

 protected:
  explicit HostQueue(bool is_inline) : is_inline_(is_inline) {}

  // For inline queues, whose caller's thread is the only one that sees it.
  void set_has_failed() { has_failed_ = true; }

 private:
  const bool is_inline_;
  bool has_failed_ = false;
};

struct HostDeviceOptions {
  QueueMode queues = QueueMode::kInline;
  // Random delays before work, to shake schedules (kThreads only); 0: none.
  std::uint64_t delay_seed = 0;
};

std::unique_ptr<Device> MakeHostDevice(const HostDeviceOptions& options);

// Enqueues `work` (callable, returns nothing) on a host queue; inline queues run it without a copy.
template <typename Work>
void RunOn(Queue& queue, Work&& work) {
  auto& host = static_cast<HostQueue&>(queue);
  if (host.runs_at_once()) {
    work();
    return;
  }
  host.Enqueue([work = std::forward<Work>(work)]() mutable {
    work();
    return OkStatus();
  });
}

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DEVICE_HOST_DEVICE_H_

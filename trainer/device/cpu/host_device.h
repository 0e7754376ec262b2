// The CPU as a Device. Queues run their work at once or on their own threads.
#ifndef CKPT_TRAINER_DEVICE_CPU_HOST_DEVICE_H_
#define CKPT_TRAINER_DEVICE_CPU_HOST_DEVICE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "trainer/device/device.h"

namespace ckpt::trainer {

enum class QueueMode : std::uint8_t {
  kInline,   // enqueued work runs before Enqueue returns
  kThreads,  // every queue has a thread: work really overlaps, and a missing wait is noticed
};

// A queue of host work. Every queue of a host device is a HostQueue.
class HostQueue : public Queue {
 public:
  [[nodiscard]] bool is_inline() const { return is_inline_; }
  // Whether work may run on the caller's thread instead of being enqueued: the queue is inline and
  // has not failed.
  [[nodiscard]] bool runs_at_once() const { return is_inline_ && !has_failed_; }
  // Runs `work` after everything enqueued before. If it returns an error, the queue fails with it.
  virtual void Enqueue(std::function<Status()> work) = 0;
  void Fail(Status error) final {
    Enqueue([error = std::move(error)] { return error; });
  }

 protected:
  explicit HostQueue(bool is_inline) : is_inline_(is_inline) {}

  // For inline queues only: they use no thread but the caller's.
  void set_has_failed() { has_failed_ = true; }

 private:
  const bool is_inline_;
  bool has_failed_ = false;
};

struct HostDeviceOptions {
  QueueMode queues = QueueMode::kInline;
  // Seed of random delays before work, which test other schedules (kThreads only); 0: no delays.
  std::uint64_t delay_seed = 0;
  // Ranks are threads of this process, and each reads the others' memory from its own queues, as
  // GPUs of one machine do. Otherwise all ranks meet in every collective.
  bool reads_peers = false;
};

std::unique_ptr<Device> MakeHostDevice(const HostDeviceOptions& options);

// Enqueues `work` (callable, returns nothing) on a host queue. An inline queue runs it without
// copying it.
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

#endif  // CKPT_TRAINER_DEVICE_CPU_HOST_DEVICE_H_

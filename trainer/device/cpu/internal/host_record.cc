#include "trainer/device/cpu/internal/host_record.h"

#include <chrono>
#include <utility>

#include "core/base/mutex.h"
#include "trainer/device/cpu/host_device.h"

namespace ckpt::trainer {
namespace {

std::int64_t Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// What the queues have run. They share it with the record, which may end before them.
class Noted {
 public:
  void Add(DeviceWork work) CKPT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    work_.push_back(std::move(work));
  }
  std::vector<DeviceWork> Take() CKPT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return std::exchange(work_, {});
  }

 private:
  Mutex mutex_;
  std::vector<DeviceWork> work_ CKPT_GUARDED_BY(mutex_);
};

// An operation is work on its queue between two pieces of work that read the clock.
class HostRecord final : public WorkRecord {
 public:
  void BeginOperation(Queue& queue, std::int64_t number) override {
    current_ = std::make_shared<DeviceWork>();
    current_->operation = number;
    RunOn(queue, [work = current_] { work->begin_ns = Now(); });
  }
  void EndOperation(Queue& queue) override {
    RunOn(queue, [work = std::move(current_), noted = noted_] {
      work->end_ns = Now();
      noted->Add(*work);
    });
  }
  Result<std::vector<DeviceWork>> Finish() override { return noted_->Take(); }

 private:
  const std::shared_ptr<Noted> noted_ = std::make_shared<Noted>();
  std::shared_ptr<DeviceWork> current_;
};

}  // namespace

std::unique_ptr<WorkRecord> StartHostRecord() { return std::make_unique<HostRecord>(); }

}  // namespace ckpt::trainer

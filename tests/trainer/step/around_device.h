// AroundDevice: a device on whose queues something stands around each piece of work.
#ifndef CKPT_TESTS_TRAINER_STEP_AROUND_DEVICE_H_
#define CKPT_TESTS_TRAINER_STEP_AROUND_DEVICE_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "tests/testing/forwarding_device.h"
#include "tests/testing/forwarding_queue.h"

namespace ckpt::testing {

// Runs one piece of work of the queue of this name.
using Around = std::function<Status(std::string_view queue, const std::function<Status()>& work)>;

// Queues as they are, but for what stands around their work, and that one may forget to wait.
class AroundDevice final : public ForwardingDevice {
 public:
  AroundDevice(std::unique_ptr<trainer::Device> device, Around around, bool forgets = false)
      : ForwardingDevice(std::move(device)), around_(std::move(around)), forgets_(forgets) {}

  std::unique_ptr<Queue> MakeQueue(std::string_view name) override {
    return std::make_unique<WrappedQueue>(ForwardingDevice::MakeQueue(name), std::string(name),
                                          around_, name == "compute" && forgets_);
  }

 private:
  class WrappedQueue final : public ForwardingQueue {
   public:
    WrappedQueue(std::unique_ptr<Queue> target, std::string name, Around around, bool forgets)
        : ForwardingQueue(std::move(target)),
          name_(std::move(name)),
          around_(std::move(around)),
          forgets_(forgets) {}
    ~WrappedQueue() override { Finish(); }

    void Enqueue(std::function<Status()> work) override {
      ForwardingQueue::Enqueue([this, work = std::move(work)] { return around_(name_, work); });
    }
    void Wait(const trainer::Event& event) override {
      if (!forgets_) ForwardingQueue::Wait(event);
    }

   private:
    const std::string name_;
    const Around around_;
    const bool forgets_;
  };

  const Around around_;
  const bool forgets_;
};

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_TRAINER_STEP_AROUND_DEVICE_H_

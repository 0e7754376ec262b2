// ForwardingQueue: a HostQueue that hands every call on. Tests that change a call derive from it.
#ifndef CKPT_TESTS_TESTING_FORWARDING_QUEUE_H_
#define CKPT_TESTS_TESTING_FORWARDING_QUEUE_H_

#include <functional>
#include <memory>
#include <utility>

#include "trainer/device/cpu/host_device.h"

namespace ckpt::testing {

class ForwardingQueue : public trainer::HostQueue {
 public:
  // `target` is a HostQueue.
  explicit ForwardingQueue(std::unique_ptr<trainer::Queue> target)
      : HostQueue(/*is_inline=*/false), target_(std::move(target)) {}

  void Enqueue(std::function<Status()> work) override {
    static_cast<trainer::HostQueue&>(*target_).Enqueue(std::move(work));
  }
  trainer::Event Record() override { return target_->Record(); }
  void Wait(const trainer::Event& event) override { target_->Wait(event); }
  Status Synchronize() override { return target_->Synchronize(); }
  Status Await(const trainer::Event& event) override { return target_->Await(event); }

 protected:
  // Runs the work that is left. For destructors of classes whose members that work uses.
  void Finish() { target_.reset(); }

 private:
  std::unique_ptr<trainer::Queue> target_;
};

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_TESTING_FORWARDING_QUEUE_H_

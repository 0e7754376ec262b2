// StrictDevice: ends the program if a step waits for the device, copies between memories in a way
// that may wait, or allocates.
#ifndef CKPT_TESTS_TESTING_STRICT_DEVICE_H_
#define CKPT_TESTS_TESTING_STRICT_DEVICE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "core/base/check.h"
#include "tests/testing/forwarding_device.h"
#include "tests/testing/forwarding_queue.h"

namespace ckpt::testing {

// Between EnterStep and LeaveStep, queues must not be synchronised (awaiting an event is allowed),
// nothing is allocated, and only pinned memory of the host is copied from and to.
class StrictDevice final : public ForwardingDevice {
 public:
  explicit StrictDevice(std::unique_ptr<trainer::Device> target)
      : ForwardingDevice(std::move(target)) {}

  void EnterStep() { in_step_ = true; }
  void LeaveStep() { in_step_ = false; }

  Result<trainer::Buffer> Allocate(std::uint64_t size_bytes, trainer::MemoryUse use) override {
    CKPT_CHECK(!in_step_);
    return ForwardingDevice::Allocate(size_bytes, use);
  }
  Result<trainer::PinnedBuffer> AllocatePinned(std::uint64_t size_bytes) override {
    CKPT_CHECK(!in_step_);
    CKPT_ASSIGN_OR_RETURN(trainer::PinnedBuffer buffer,
                          ForwardingDevice::AllocatePinned(size_bytes));
    // It may be an address that was given back; then the larger size counts.
    std::uint64_t& known_bytes = pinned_[buffer.data()];
    known_bytes = std::max(known_bytes, size_bytes);
    return buffer;
  }
  std::unique_ptr<trainer::Queue> MakeQueue(std::string_view name) override {
    CKPT_CHECK(!in_step_);
    return std::make_unique<StrictQueue>(ForwardingDevice::MakeQueue(name), *this);
  }
  void CopyToHost(trainer::Queue& queue, const trainer::Tensor& from, void* host) override {
    CheckPinned(host, from.size_bytes());
    ForwardingDevice::CopyToHost(queue, from, host);
  }
  void CopyFromHost(trainer::Queue& queue, const void* host, const trainer::Tensor& to) override {
    CheckPinned(host, to.size_bytes());
    ForwardingDevice::CopyFromHost(queue, host, to);
  }

 private:
  class StrictQueue final : public ForwardingQueue {
   public:
    StrictQueue(std::unique_ptr<trainer::Queue> target, const StrictDevice& device)
        : ForwardingQueue(std::move(target)), device_(device) {}

    Status Synchronize() override {
      CKPT_CHECK(!device_.in_step_);
      return ForwardingQueue::Synchronize();
    }

   private:
    const StrictDevice& device_;
  };

  void CheckPinned(const void* host, std::uint64_t size_bytes) const {
    if (!in_step_) return;
    const auto* const begin = static_cast<const std::byte*>(host);
    const auto after = pinned_.upper_bound(begin);
    CKPT_CHECK(after != pinned_.begin());
    const auto& [data, known_bytes] = *std::prev(after);
    CKPT_CHECK(begin + size_bytes <= data + known_bytes);
  }

  bool in_step_ = false;
  std::map<const std::byte*, std::uint64_t> pinned_;  // size by address
};

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_TESTING_STRICT_DEVICE_H_

// ForwardingDevice: a Device that hands every call on, to be derived from by tests that change one.
#ifndef CKPT_TESTS_TESTING_FORWARDING_DEVICE_H_
#define CKPT_TESTS_TESTING_FORWARDING_DEVICE_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "core/base/check.h"
#include "trainer/comm/host_group.h"
#include "trainer/device/collectives.h"
#include "trainer/device/device.h"

namespace ckpt::testing {

// Memory and its counts belong to the target.
class ForwardingDevice : public trainer::Device {
 public:
  using Buffer = trainer::Buffer;
  using Collectives = trainer::Collectives;
  using HostGroup = trainer::HostGroup;
  using MemoryUse = trainer::MemoryUse;
  using PinnedBuffer = trainer::PinnedBuffer;
  using Queue = trainer::Queue;
  using Tensor = trainer::Tensor;

  explicit ForwardingDevice(std::unique_ptr<trainer::Device> target) : target_(std::move(target)) {}

  Result<Buffer> Allocate(std::uint64_t size_bytes, MemoryUse use) override {
    return target_->Allocate(size_bytes, use);
  }
  Result<PinnedBuffer> AllocatePinned(std::uint64_t size_bytes) override {
    return target_->AllocatePinned(size_bytes);
  }
  [[nodiscard]] bool is_asynchronous() const override { return target_->is_asynchronous(); }
  std::unique_ptr<Queue> MakeQueue(std::string_view name) override {
    return target_->MakeQueue(name);
  }
  void CopyToHost(Queue& queue, const Tensor& from, void* host) override {
    target_->CopyToHost(queue, from, host);
  }
  void CopyFromHost(Queue& queue, const void* host, const Tensor& to) override {
    target_->CopyFromHost(queue, host, to);
  }
  Result<std::unique_ptr<Collectives>> MakeCollectives(std::unique_ptr<HostGroup> group) override {
    return target_->MakeCollectives(std::move(group));
  }

 private:
  void Free(void* /*data*/) override { CKPT_CHECK(false); }
  void FreePinned(void* /*data*/) override { CKPT_CHECK(false); }

  const std::unique_ptr<trainer::Device> target_;
};

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_TESTING_FORWARDING_DEVICE_H_

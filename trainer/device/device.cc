#include "trainer/device/device.h"

#include <algorithm>
#include <utility>

namespace ckpt::trainer {

std::string_view MemoryUseName(MemoryUse use) {
  switch (use) {
    case MemoryUse::kWeights:
      return "weights";
    case MemoryUse::kMainWeights:
      return "main weights";
    case MemoryUse::kGradients:
      return "gradients";
    case MemoryUse::kOptimizer:
      return "optimizer";
    case MemoryUse::kSlots:
      return "slots";
    case MemoryUse::kActivations:
      return "activations";
    case MemoryUse::kOther:
      return "other";
  }
  return "unknown";
}

Buffer::Buffer(Buffer&& other) noexcept
    : device_(std::exchange(other.device_, nullptr)),
      data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)),
      use_(other.use_) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  Buffer taken(std::move(other));
  std::swap(device_, taken.device_);
  std::swap(data_, taken.data_);
  std::swap(size_bytes_, taken.size_bytes_);
  std::swap(use_, taken.use_);
  return *this;
}

Buffer::~Buffer() {
  if (device_ == nullptr) return;
  device_->Uncount(use_, size_bytes_);
  device_->Free(data_);
}

void PinnedReturn::operator()(void* data) const { device->FreePinned(data); }

Result<std::unique_ptr<WorkRecord>> Device::RecordWork() {
  return Error(ErrorKind::kUnsupported, "this device keeps no record of its work");
}

void Device::Count(MemoryUse use, std::uint64_t size_bytes) {
  MemoryUsage& usage = usage_[static_cast<std::size_t>(use)];
  usage.current_bytes += size_bytes;
  usage.peak_bytes = std::max(usage.peak_bytes, usage.current_bytes);
}

void Device::Uncount(MemoryUse use, std::uint64_t size_bytes) {
  usage_[static_cast<std::size_t>(use)].current_bytes -= size_bytes;
}

}  // namespace ckpt::trainer

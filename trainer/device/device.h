// Device: memory, queues, copies and collectives of one rank's processor.
#ifndef CKPT_TRAINER_DEVICE_DEVICE_H_
#define CKPT_TRAINER_DEVICE_DEVICE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "core/base/result.h"
#include "core/tensor/dtype.h"
#include "trainer/device/queue.h"
#include "trainer/device/tensor.h"
#include "trainer/device/work_record.h"

namespace ckpt::trainer {

// What memory is used for. `explain` predicts the peak of each use, and a test compares.
enum class MemoryUse : std::uint8_t {
  kWeights,
  kMainWeights,
  kGradients,
  kOptimizer,
  kSlots,
  kActivations,
  kOther
};
inline constexpr int kNumMemoryUses = static_cast<int>(MemoryUse::kOther) + 1;
[[nodiscard]] std::string_view MemoryUseName(MemoryUse use);

struct MemoryUsage {
  std::uint64_t current_bytes = 0;
  std::uint64_t peak_bytes = 0;
};

class Collectives;
class Device;
class HostGroup;

// Owned device memory, aligned to 256 bytes and zero at first: all work that is enqueued after the
// allocation finds zeros, on every queue of the device. Destruction returns it to its device;
// synchronise the queues that use it before that.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Device* device, void* data, std::uint64_t size_bytes, MemoryUse use)
      : device_(device), data_(data), size_bytes_(size_bytes), use_(use) {}
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(data_); }
  [[nodiscard]] std::uint64_t size_bytes() const { return size_bytes_; }

 private:
  Device* device_ = nullptr;
  void* data_ = nullptr;
  std::uint64_t size_bytes_ = 0;
  MemoryUse use_ = MemoryUse::kOther;
};

// Gives pinned memory back to its device.
struct PinnedReturn {
  Device* device = nullptr;
  void operator()(void* data) const;
};

// Owned memory of the host that a device can copy from and to while the host goes on (page-locked,
// where devices need that), aligned to 256 bytes, with undefined contents. It does not count as
// memory of the device. Synchronise the queues that use it before destroying it.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  PinnedBuffer(Device* device, void* data, std::uint64_t size_bytes)
      : data_(data, PinnedReturn{device}), size_bytes_(size_bytes) {}

  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(data_.get()); }
  [[nodiscard]] std::uint64_t size_bytes() const { return size_bytes_; }

 private:
  std::unique_ptr<void, PinnedReturn> data_;
  std::uint64_t size_bytes_ = 0;
};

// Thread-safety: one thread, the rank's.
class Device {
 public:
  virtual ~Device() = default;

  // Errors: kSystem (out of memory).
  virtual Result<Buffer> Allocate(std::uint64_t size_bytes, MemoryUse use) = 0;
  virtual Result<PinnedBuffer> AllocatePinned(std::uint64_t size_bytes) = 0;
  // Makes a new queue; `name` appears in traces ("compute", "all-gather").
  virtual std::unique_ptr<Queue> MakeQueue(std::string_view name) = 0;

  // Whether queues run while the host goes on. Otherwise work runs when it is enqueued, and a host
  // gains nothing by enqueueing ahead of what it needs.
  [[nodiscard]] virtual bool is_asynchronous() const = 0;

  // Floating-point operations that the device can do in a second in matrix products of `compute`,
  // by its maker's figures; 0: not known.
  [[nodiscard]] virtual double PeakFlops(DType /*compute*/) const { return 0; }
  // Bytes that a long pass over its memory reads and writes in a second; 0: not known.
  [[nodiscard]] virtual double PeakBandwidth() const { return 0; }

  // Enqueue a copy between this device's memory and the host's. `host` stays valid until the queue
  // has run it. If `host` is not pinned, the call may block until then.
  virtual void CopyToHost(Queue& queue, const Tensor& from, void* host) = 0;
  virtual void CopyFromHost(Queue& queue, const void* host, const Tensor& to) = 0;

  // Collectives of the ranks of `group`, which nobody else may use from now on. Every rank of the
  // group calls it. Errors: those of the group.
  virtual Result<std::unique_ptr<Collectives>> MakeCollectives(
      std::unique_ptr<HostGroup> group) = 0;

  // Records what all queues run from now on. Errors: kUnsupported, kSystem.
  virtual Result<std::unique_ptr<WorkRecord>> RecordWork();

  [[nodiscard]] const MemoryUsage& usage(MemoryUse use) const {
    return usage_[static_cast<std::size_t>(use)];
  }

 protected:
  void Count(MemoryUse use, std::uint64_t size_bytes);

 private:
  friend class Buffer;
  friend struct PinnedReturn;
  virtual void Free(void* data) = 0;
  virtual void FreePinned(void* data) = 0;
  void Uncount(MemoryUse use, std::uint64_t size_bytes);

  std::array<MemoryUsage, kNumMemoryUses> usage_{};
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DEVICE_DEVICE_H_

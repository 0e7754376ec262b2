#include "trainer/device/cpu/host_device.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "trainer/comm/host_group.h"
#include "trainer/device/cpu/internal/host_collectives.h"
#include "trainer/device/cpu/internal/host_peer_reader.h"
#include "trainer/device/cpu/internal/host_queues.h"
#include "trainer/device/cpu/internal/host_record.h"
#include "trainer/device/peer/peer_collectives.h"

namespace ckpt::trainer {
namespace {

constexpr std::uint64_t kAlignmentBytes = 256;
// Arrays at least this large start on a boundary of this size and ask for huge pages. Matrix
// products walk along columns, and with small pages nearly every element would need a page look-up.
constexpr std::uint64_t kHugePageBytes = std::uint64_t{2} << 20;

// Memory of at least `size_bytes`; null if there is none.
void* AllocateAligned(std::uint64_t size_bytes) {
  const std::uint64_t alignment = size_bytes < kHugePageBytes ? kAlignmentBytes : kHugePageBytes;
  if (size_bytes > std::numeric_limits<std::ptrdiff_t>::max() - alignment) return nullptr;
  // At least one byte, since a null tensor means an absent one.
  const std::uint64_t whole_bytes = (size_bytes / alignment + 1) * alignment;
  void* const data = std::aligned_alloc(alignment, whole_bytes);
  // Only a request: the program also works without huge pages.
  if (data != nullptr && alignment == kHugePageBytes) {
    (void)::madvise(data, whole_bytes, MADV_HUGEPAGE);
  }
  return data;
}

// A zero-sized array may have a null address, which memcpy does not allow.
void CopyBytes(const void* from, void* to, std::uint64_t size_bytes) {
  if (size_bytes != 0) std::memcpy(to, from, size_bytes);
}

class HostDevice final : public Device {
 public:
  explicit HostDevice(const HostDeviceOptions& options) : options_(options) {}

  Result<Buffer> Allocate(std::uint64_t size_bytes, MemoryUse use) override {
    void* const data = AllocateAligned(size_bytes);
    if (data == nullptr) {
      return Error(ErrorKind::kSystem, "out of memory")
          .Expected(std::to_string(size_bytes) + " bytes for " + std::string(MemoryUseName(use)));
    }
    std::memset(data, 0, size_bytes);
    Count(use, size_bytes);
    return Buffer(this, data, size_bytes, use);
  }

  Result<PinnedBuffer> AllocatePinned(std::uint64_t size_bytes) override {
    void* const data = AllocateAligned(size_bytes);
    if (data == nullptr) {
      return Error(ErrorKind::kSystem, "out of memory")
          .Expected(std::to_string(size_bytes) + " bytes for copies");
    }
    return PinnedBuffer(this, data, size_bytes);
  }

  [[nodiscard]] bool is_asynchronous() const override {
    return options_.queues == QueueMode::kThreads;
  }

  Result<std::unique_ptr<WorkRecord>> RecordWork() override { return StartHostRecord(); }

  std::unique_ptr<Queue> MakeQueue(std::string_view name) override {
    if (options_.queues == QueueMode::kInline) return MakeInlineQueue();
    // The delays differ between the queues of a device but are the same in every run.
    const std::uint64_t seed = options_.delay_seed == 0 ? 0 : options_.delay_seed + num_queues_++;
    return MakeThreadQueue(name, seed);
  }

  void CopyToHost(Queue& queue, const Tensor& from, void* host) override {
    RunOn(queue, [from, host] { CopyBytes(from.data, host, from.size_bytes()); });
  }
  void CopyFromHost(Queue& queue, const void* host, const Tensor& to) override {
    RunOn(queue, [host, to] { CopyBytes(host, to.data, to.size_bytes()); });
  }

  Result<std::unique_ptr<Collectives>> MakeCollectives(std::unique_ptr<HostGroup> group) override {
    if (options_.reads_peers) return MakePeerCollectives(std::move(group), MakeHostPeerReader());
    return MakeHostCollectives(std::move(group), *this);
  }

 private:
  void Free(void* data) override { std::free(data); }
  void FreePinned(void* data) override { std::free(data); }

  const HostDeviceOptions options_;
  std::uint64_t num_queues_ = 0;
};

}  // namespace

std::unique_ptr<Device> MakeHostDevice(const HostDeviceOptions& options) {
  return std::make_unique<HostDevice>(options);
}

}  // namespace ckpt::trainer

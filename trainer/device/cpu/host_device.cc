#include "trainer/device/cpu/host_device.h"

#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "trainer/comm/host_group.h"
#include "trainer/device/cpu/internal/host_collectives.h"
#include "trainer/device/cpu/internal/host_peer_reader.h"
#include "trainer/device/cpu/internal/host_queues.h"
#include "trainer/device/cpu/internal/host_record.h"
#include "trainer/device/cpu/internal/large_blocks.h"
#include "trainer/device/peer/peer_collectives.h"

namespace ckpt::trainer {
namespace {

constexpr std::uint64_t kAlignmentBytes = 256;

// A zero-sized array may have a null address, which memcpy does not allow.
void CopyBytes(const void* from, void* to, std::uint64_t size_bytes) {
  if (size_bytes != 0) std::memcpy(to, from, size_bytes);
}

class HostDevice final : public Device {
 public:
  explicit HostDevice(const HostDeviceOptions& options) : options_(options) {}

  Result<Buffer> Allocate(std::uint64_t size_bytes, MemoryUse use) override {
    void* const data = AllocateZeros(size_bytes);
    if (data == nullptr) {
      return Error(ErrorKind::kSystem, "out of memory")
          .Expected(std::to_string(size_bytes) + " bytes for " + std::string(MemoryUseName(use)));
    }
    Count(use, size_bytes);
    return Buffer(this, data, size_bytes, use);
  }

  Result<PinnedBuffer> AllocatePinned(std::uint64_t size_bytes) override {
    void* const data = AllocateZeros(size_bytes);
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
  // Memory of at least `size_bytes`; null if there is none.
  void* AllocateZeros(std::uint64_t size_bytes) {
    if (size_bytes >= LargeBlocks::kPageBytes) return large_.Allocate(size_bytes);
    // At least one byte, since a null tensor means an absent one.
    const std::uint64_t whole_bytes = (size_bytes / kAlignmentBytes + 1) * kAlignmentBytes;
    void* const data = std::aligned_alloc(kAlignmentBytes, whole_bytes);
    if (data != nullptr) std::memset(data, 0, size_bytes);
    return data;
  }

  void Free(void* data) override {
    if (!large_.Free(data)) std::free(data);
  }
  void FreePinned(void* data) override { Free(data); }

  LargeBlocks large_;
  const HostDeviceOptions options_;
  std::uint64_t num_queues_ = 0;
};

}  // namespace

std::unique_ptr<Device> MakeHostDevice(const HostDeviceOptions& options) {
  return std::make_unique<HostDevice>(options);
}

}  // namespace ckpt::trainer

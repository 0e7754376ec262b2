#include "trainer/rehearsal/idle_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "trainer/device/collectives.h"

namespace ckpt::trainer {
namespace {

class IdleQueue final : public Queue {
 public:
  Event Record() override { return {}; }
  void Wait(const Event& /*event*/) override {}
  Status Synchronize() override { return status_; }
  Status Await(const Event& /*event*/) override { return status_; }
  void Fail(Status error) override { status_ = std::move(error); }

 private:
  Status status_;
};

class IdleCollectives final : public Collectives {
 public:
  explicit IdleCollectives(std::unique_ptr<HostGroup> group) : Collectives(std::move(group)) {}

  void AllGather(Queue& /*queue*/, const Tensor& /*shard*/, const Tensor& /*full*/) override {}
  void ReduceScatterInto(Queue& /*queue*/, const Tensor& /*full*/, const Tensor& /*shard*/,
                         GradWrite /*write*/, std::span<const ShardRows> /*rows*/) override {}
  void ScatterParts(Queue& /*queue*/, const Tensor& /*full*/,
                    std::span<const Tensor> /*terms*/) override {}
  void AllReduce(Queue& /*queue*/, const Tensor& /*data*/, ReduceOp /*op*/) override {}
  void AllToAll(Queue& /*queue*/, std::span<const RowTransfer> /*transfers*/,
                const RowCounts& /*send_rows*/, const RowCounts& /*receive_rows*/) override {}
};

class IdleDevice final : public Device {
 public:
  Result<Buffer> Allocate(std::uint64_t size_bytes, MemoryUse use) override {
    const std::uint64_t mapped_bytes = std::max<std::uint64_t>(size_bytes, 1);
    void* const data = ::mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) {
      return Error(ErrorKind::kSystem, "out of addresses")
          .Expected(std::to_string(size_bytes) + " bytes for " + std::string(MemoryUseName(use)));
    }
    mapped_bytes_[data] = mapped_bytes;
    Count(use, size_bytes);
    return Buffer(this, data, size_bytes, use);
  }

  Result<PinnedBuffer> AllocatePinned(std::uint64_t /*size_bytes*/) override {
    return Error(ErrorKind::kInternal, "a rehearsal copies nothing");
  }

  [[nodiscard]] bool is_asynchronous() const override { return false; }

  std::unique_ptr<Queue> MakeQueue(std::string_view /*name*/) override {
    return std::make_unique<IdleQueue>();
  }

  void CopyToHost(Queue& /*queue*/, const Tensor& from, void* host) override {
    if (from.num_elems() > 0) std::memcpy(host, from.data, from.size_bytes());
  }
  void CopyFromHost(Queue& /*queue*/, const void* /*host*/, const Tensor& /*to*/) override {}
  Result<std::unique_ptr<Collectives>> MakeCollectives(std::unique_ptr<HostGroup> group) override {
    return std::unique_ptr<Collectives>(std::make_unique<IdleCollectives>(std::move(group)));
  }

 private:
  void Free(void* data) override {
    const auto mapped = mapped_bytes_.extract(data);
    (void)::munmap(data, mapped.mapped());
  }

  void FreePinned(void* /*data*/) override {}  // there is none

  std::map<void*, std::uint64_t> mapped_bytes_;
};

}  // namespace

std::unique_ptr<Device> MakeIdleDevice() { return std::make_unique<IdleDevice>(); }

}  // namespace ckpt::trainer

// RankDevice: what one rank computes with: a device, operations, a queue and an arena full of NaNs.
#ifndef CKPT_TESTS_TRAINER_MODEL_RANK_DEVICE_H_
#define CKPT_TESTS_TRAINER_MODEL_RANK_DEVICE_H_

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "tests/testing/device_values.h"
#include "trainer/comm/host_group.h"
#include "trainer/device/arena.h"
#include "trainer/device/collectives.h"
#include "trainer/device/cpu/host_device.h"
#include "trainer/model/block.h"
#include "trainer/ops/cpu/host_ops.h"

namespace ckpt::testing {

class RankDevice {
 public:
  explicit RankDevice(const trainer::HostDeviceOptions& device = {},
                      const trainer::HostOpsOptions& ops = {})
      : device_(trainer::MakeHostDevice(device)),
        ops_(trainer::MakeHostOps(ops)),
        queue_(device_->MakeQueue("compute")),
        arena_(*device_, *queue_, kArenaBytes) {
    // Whoever reads what nobody wrote reads NaN.
    const trainer::ArenaScope scope(arena_);
    Poison(arena_.Allocate(DType::kFloat32, {kArenaBytes / 4}));
  }

  // What was enqueued uses the memory that goes now.
  ~RankDevice() { (void)queue_->Synchronize(); }
  RankDevice(const RankDevice&) = delete;
  RankDevice& operator=(const RankDevice&) = delete;

  [[nodiscard]] trainer::Device& device() { return *device_; }
  [[nodiscard]] trainer::Queue& queue() { return *queue_; }
  [[nodiscard]] trainer::Arena& arena() { return arena_; }
  [[nodiscard]] trainer::BlockContext Context(DType compute, std::int64_t batch, std::int64_t seq) {
    return {.ops = *ops_,
            .device = *device_,
            .queue = *queue_,
            .arena = arena_,
            .compute = compute,
            .batch = batch,
            .seq = seq};
  }

  // Memory outside the arena, as long as this lives: zeros, NaNs, or `values`.
  trainer::Tensor Zeros(DType dtype, std::initializer_list<std::int64_t> dims) {
    trainer::Tensor tensor(nullptr, dtype, dims);
    auto buffer = device_->Allocate(tensor.size_bytes(), trainer::MemoryUse::kOther);
    CKPT_CHECK(buffer.ok());
    buffers_.push_back(std::move(*buffer));
    tensor.data = buffers_.back().data();
    return tensor;
  }
  trainer::Tensor Nans(DType dtype, std::initializer_list<std::int64_t> dims) {
    const trainer::Tensor tensor = Zeros(dtype, dims);
    Poison(tensor);
    return tensor;
  }
  trainer::Tensor Put(const std::vector<double>& values, DType dtype,
                      std::initializer_list<std::int64_t> dims) {
    const trainer::Tensor tensor = Zeros(dtype, dims);
    WriteValues(*device_, *queue_, values, tensor);
    return tensor;
  }
  // Of the ranks of `group`, each of which calls it.
  [[nodiscard]] std::unique_ptr<trainer::Collectives> CollectivesOf(trainer::HostGroup& group) {
    auto ranks = group.Split(0, group.rank());
    CKPT_CHECK(ranks.ok());
    auto collectives = device_->MakeCollectives(std::move(*ranks));
    CKPT_CHECK(collectives.ok());
    return std::move(*collectives);
  }
  [[nodiscard]] std::vector<double> Read(const trainer::Tensor& tensor) {
    return ReadValues(*device_, *queue_, tensor);
  }

 private:
  static constexpr std::int64_t kArenaBytes = std::int64_t{1} << 18;

  void Poison(const trainer::Tensor& tensor) {
    ops_->Fill(*queue_, tensor, std::numeric_limits<double>::quiet_NaN());
  }

  const std::unique_ptr<trainer::Device> device_;
  const std::unique_ptr<trainer::Ops> ops_;
  const std::unique_ptr<trainer::Queue> queue_;
  trainer::Arena arena_;
  std::vector<trainer::Buffer> buffers_;
};

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_TRAINER_MODEL_RANK_DEVICE_H_

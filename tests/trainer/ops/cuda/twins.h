// Twins: the same operation on the CPU and on the GPU, over the same operands.
#ifndef CKPT_TESTS_TRAINER_OPS_CUDA_TWINS_H_
#define CKPT_TESTS_TRAINER_OPS_CUDA_TWINS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "core/base/check.h"
#include "tests/testing/device_values.h"
#include "tests/testing/matchers.h"
#include "trainer/device/cpu/host_device.h"
#include "trainer/device/cuda/cuda_device.h"
#include "trainer/ops/cpu/host_ops.h"
#include "trainer/ops/cuda/cuda_ops.h"

namespace ckpt::trainer {

// Skips where there is no GPU.
class Twins : public ::testing::Test {
 protected:
  struct Side {
    std::unique_ptr<Device> device;
    std::unique_ptr<Ops> ops;
    std::unique_ptr<Queue> queue;
  };

  // One array in each memory. It may be used where an operation of either side takes a tensor.
  class Operand {
   public:
    Operand(Twins& twins, DType dtype, std::initializer_list<std::int64_t> dims) : twins_(&twins) {
      for (int side = 0; side < 2; ++side) {
        const std::uint64_t size_bytes = Tensor(nullptr, dtype, dims).size_bytes();
        Result<Buffer> buffer = twins.sides_[side].device->Allocate(size_bytes, MemoryUse::kOther);
        CKPT_CHECK(buffer.ok());
        buffers_[side] = std::move(buffer).value();
        tensors_[side] = Tensor(buffers_[side].data(), dtype, dims);
      }
    }

    void Set(const std::vector<double>& values) const {
      for (int side = 0; side < 2; ++side) {
        const Side& at = twins_->sides_[side];
        testing::WriteValues(*at.device, *at.queue, values, tensors_[side]);
      }
    }
    [[nodiscard]] std::vector<double> Read(int side) const {
      const Side& at = twins_->sides_[side];
      return testing::ReadValues(*at.device, *at.queue, tensors_[side]);
    }

    // The tensor of the side that runs now.
    // NOLINTNEXTLINE(google-explicit-constructor): an operand stands for its tensor
    operator const Tensor&() const { return tensors_[twins_->running_]; }
    [[nodiscard]] std::int64_t num_elems() const { return tensors_[0].num_elems(); }

   private:
    Twins* twins_;
    Buffer buffers_[2];
    Tensor tensors_[2];
  };

  void SetUp() override {
    if (NumCudaDevices() == 0) GTEST_SKIP() << "no GPU";
    sides_[kCpu].device = MakeHostDevice({});
    sides_[kCpu].ops = MakeHostOps({.threads = 8});
    Result<std::unique_ptr<Device>> gpu = MakeCudaDevice(0);
    ASSERT_THAT(gpu.status(), testing::IsOk());
    sides_[kGpu].device = std::move(gpu).value();
    UseGpuOps({.deterministic = true});
    for (Side& side : sides_) side.queue = side.device->MakeQueue("test");
  }

  void UseGpuOps(const CudaOpsOptions& options) {
    Result<std::unique_ptr<Ops>> ops = MakeCudaOps(options);
    ASSERT_THAT(ops.status(), testing::IsOk());
    sides_[kGpu].ops = std::move(ops).value();
  }

  Operand Values(DType dtype, std::initializer_list<std::int64_t> dims,
                 const std::vector<double>& values) {
    Operand operand(*this, dtype, dims);
    operand.Set(values);
    return operand;
  }
  // Normal numbers of this standard deviation, rounded to the dtype.
  Operand Random(DType dtype, std::initializer_list<std::int64_t> dims, double deviation = 1) {
    Operand operand(*this, dtype, dims);
    std::vector<double> values(static_cast<std::size_t>(operand.num_elems()));
    std::normal_distribution<double> normal(0, deviation);
    for (double& value : values) value = normal(rng_);
    operand.Set(values);
    return operand;
  }
  // Whole numbers in [0, limit).
  Operand Indices(std::initializer_list<std::int64_t> dims, std::int64_t limit) {
    Operand operand(*this, DType::kInt32, dims);
    std::vector<double> values(static_cast<std::size_t>(operand.num_elems()));
    std::uniform_int_distribution<std::int64_t> any(0, limit - 1);
    for (double& value : values) value = static_cast<double>(any(rng_));
    operand.Set(values);
    return operand;
  }
  // NaN: what an operation does not write shows.
  Operand Poisoned(DType dtype, std::initializer_list<std::int64_t> dims) {
    Operand operand(*this, dtype, dims);
    operand.Set(std::vector<double>(static_cast<std::size_t>(operand.num_elems()), std::nan("")));
    return operand;
  }

  // Enqueues the same on both sides.
  void OnBoth(const std::function<void(Ops& ops, Queue& queue)>& enqueue) {
    for (running_ = 0; running_ < 2; ++running_) {
      Side& side = sides_[running_];
      enqueue(*side.ops, *side.queue);
      ASSERT_THAT(side.queue->Synchronize(), testing::IsOk());
    }
    running_ = kCpu;
  }

  // ‖gpu - cpu‖ is at most `bound` times ‖cpu‖, or times the root of the number of elements where
  // these are smaller than 1; a NaN never passes.
  static void ExpectNear(const Operand& result, double bound) {
    if (HasFatalFailure()) return;
    const std::vector<double> cpu = result.Read(kCpu);
    const std::vector<double> gpu = result.Read(kGpu);
    double difference = 0;
    double norm = 0;
    for (std::size_t i = 0; i < cpu.size(); ++i) {
      difference += (gpu[i] - cpu[i]) * (gpu[i] - cpu[i]);
      norm += cpu[i] * cpu[i];
    }
    EXPECT_LE(std::sqrt(difference),
              bound * std::sqrt(std::max(norm, static_cast<double>(cpu.size()))));
    EXPECT_TRUE(std::isfinite(norm));
  }
  static void ExpectEqual(const Operand& result) {
    if (HasFatalFailure()) return;
    EXPECT_EQ(result.Read(kGpu), result.Read(kCpu));
  }
  // What one rounding to the dtype costs on average, or a few hundred float32 additions.
  static double BoundOf(DType dtype) { return dtype == DType::kBfloat16 ? 2e-3 : 2e-6; }

 private:
  static constexpr int kCpu = 0;
  static constexpr int kGpu = 1;

  std::mt19937_64 rng_{20240731};
  Side sides_[2];
  int running_ = kCpu;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TESTS_TRAINER_OPS_CUDA_TWINS_H_

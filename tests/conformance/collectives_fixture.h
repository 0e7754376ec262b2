// What the conformance suites of collectives share: worlds of ranks, and arrays in the memory of a
// rank's device.
#ifndef CKPT_TESTS_CONFORMANCE_COLLECTIVES_FIXTURE_H_
#define CKPT_TESTS_CONFORMANCE_COLLECTIVES_FIXTURE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/check.h"
#include "tests/conformance/rank_values.h"
#include "tests/testing/matchers.h"
#include "trainer/comm/host_group.h"
#include "trainer/device/collectives.h"
#include "trainer/device/cpu/host_device.h"

namespace ckpt::trainer {

struct WorldCase {
  std::string name;
  std::string why_skipped = {};  // empty: it runs
  // A rank's device.
  std::function<Result<std::unique_ptr<Device>>(int rank)> make_device;
  // Whether ranks may call two groups in different orders: every queue runs by itself, and ranks do
  // not read each other's memory.
  bool may_swap_groups = false;
  // Runs `body(world)` on every rank that lives in this process.
  std::function<Status(const std::function<Status(HostGroup& world)>& body)> run;
};
inline void PrintTo(const WorldCase& c, std::ostream* os) { *os << c.name; }
// A device of the CPU with random delays.
inline std::function<Result<std::unique_ptr<Device>>(int rank)> HostDevices(QueueMode queues,
                                                                            bool reads_peers) {
  return [=](int rank) -> Result<std::unique_ptr<Device>> {
    return MakeHostDevice({.queues = queues,
                           .delay_seed = static_cast<std::uint64_t>(rank) + 1,
                           .reads_peers = reads_peers});
  };
}
inline std::string WorldCaseName(const ::testing::TestParamInfo<WorldCase>& test) {
  return test.param.name;
}

inline Result<std::unique_ptr<Collectives>> SplitCollectives(HostGroup& world, Device& device,
                                                             int color, int key) {
  CKPT_ASSIGN_OR_RETURN(std::unique_ptr<HostGroup> part, world.Split(color, key));
  return device.MakeCollectives(std::move(part));
}

// An array in the memory of a rank's device. The device and the queue outlive it.
template <typename T>
class DeviceArray {
 public:
  DeviceArray(Device& device, Queue& queue, const std::vector<T>& values)
      : device_(&device), queue_(&queue), count_(values.size()) {
    Result<Buffer> buffer = device.Allocate(count_ * sizeof(T), MemoryUse::kOther);
    CKPT_CHECK(buffer.ok());
    buffer_ = std::move(buffer).value();
    device.CopyFromHost(queue, values.data(), tensor());
    CKPT_CHECK(queue.Synchronize().ok());
  }

  [[nodiscard]] Tensor tensor() const {
    return {buffer_.data(), kDTypeOf<T>, {static_cast<std::int64_t>(count_)}};
  }
  // Waits for the queue.
  [[nodiscard]] std::vector<T> Read() const {
    std::vector<T> values(count_);
    device_->CopyToHost(*queue_, tensor(), values.data());
    EXPECT_THAT(queue_->Synchronize(), ckpt::testing::IsOk());
    return values;
  }

 private:
  Device* device_;
  Queue* queue_;
  std::size_t count_;
  Buffer buffer_;
};

// One rank of a test.
struct TestRank {
  HostGroup& world;
  Device& device;
  Queue& queue;
  Collectives& all;  // of all ranks of `world`

  [[nodiscard]] int rank() const { return world.rank(); }
  [[nodiscard]] int size() const { return world.size(); }
  // Collectives of a part of `world`.
  [[nodiscard]] Result<std::unique_ptr<Collectives>> Split(int color, int key) const {
    return SplitCollectives(world, device, color, key);
  }
  template <typename T>
  [[nodiscard]] DeviceArray<T> Put(const std::vector<T>& values) const {
    return DeviceArray<T>(device, queue, values);
  }
  // Zeros.
  template <typename T>
  [[nodiscard]] DeviceArray<T> Put(std::size_t count) const {
    return Put(std::vector<T>(count));
  }
};

class CollectivesSuite : public ::testing::TestWithParam<WorldCase> {
 protected:
  void SetUp() override {
    if (!GetParam().why_skipped.empty()) GTEST_SKIP() << GetParam().why_skipped;
  }
  void OnEveryRank(const std::function<void(TestRank& rank)>& body) {
    const Status status = GetParam().run([&](HostGroup& world) -> Status {
      CKPT_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device,
                            GetParam().make_device(world.rank()));
      const std::unique_ptr<Queue> queue = device->MakeQueue("comm");
      CKPT_ASSIGN_OR_RETURN(const std::unique_ptr<Collectives> all,
                            SplitCollectives(world, *device, 0, world.rank()));
      TestRank rank{world, *device, *queue, *all};
      body(rank);
      return queue->Synchronize();
    });
    EXPECT_THAT(status, ckpt::testing::IsOk());
  }
  // Calls `test(T())` with every type that is summed.
  template <typename Test>
  static void ForEachType(const Test& test) {
    test(Bf16());
    test(float());
    test(double());
    test(std::int32_t());
    test(std::int64_t());
  }
};

// Odd ones, those around the block of a sum, and none at all.
inline constexpr std::int64_t kCounts[] = {0, 1, 3, 64, 1024, 1031, 5000};

}  // namespace ckpt::trainer

#endif  // CKPT_TESTS_CONFORMANCE_COLLECTIVES_FIXTURE_H_

#include "trainer/device/cpu/host_device.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "tests/testing/matchers.h"

namespace ckpt::trainer {
namespace {

using testing::FailsWith;
using testing::IsOk;

TEST(HostDeviceTest, MemoryIsZeroedAndAligned) {
  const auto device = MakeHostDevice({});
  // Several times over, so that memory comes back used.
  for (int round = 0; round < 3; ++round) {
    constexpr std::uint64_t kHugePage = 2U << 20;
    for (const std::uint64_t size : std::initializer_list<std::uint64_t>{
             0, 1, 255, 256, 257, 100'000, kHugePage - 1, kHugePage, 5'000'001}) {
      const auto buffer = device->Allocate(size, MemoryUse::kOther);
      ASSERT_THAT(buffer, IsOk());
      ASSERT_NE(buffer->data(), nullptr);  // null would mean an absent tensor
      const std::uint64_t alignment = size < kHugePage ? 256 : kHugePage;
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->data()) % alignment, 0U);
      EXPECT_EQ(buffer->size_bytes(), size);
      EXPECT_TRUE(std::all_of(buffer->data(), buffer->data() + size,
                              [](std::byte byte) { return byte == std::byte{0}; }));
      std::memset(buffer->data(), 0xFF, size);
    }
  }
}

TEST(HostDeviceTest, CountsWhatIsAllocatedAndItsPeakPerUse) {
  const auto device = MakeHostDevice({});
  auto first = device->Allocate(1000, MemoryUse::kSlots);
  ASSERT_THAT(first, IsOk());
  {
    const auto second = device->Allocate(500, MemoryUse::kSlots);
    ASSERT_THAT(second, IsOk());
    EXPECT_EQ(device->usage(MemoryUse::kSlots).current_bytes, 1500U);
  }
  EXPECT_EQ(device->usage(MemoryUse::kSlots).current_bytes, 1000U);
  EXPECT_EQ(device->usage(MemoryUse::kSlots).peak_bytes, 1500U);
  EXPECT_EQ(device->usage(MemoryUse::kWeights).peak_bytes, 0U);

  Buffer moved = std::move(*first);
  EXPECT_EQ(first->data(), nullptr);
  EXPECT_EQ(first->size_bytes(), 0U);
  EXPECT_EQ(device->usage(MemoryUse::kSlots).current_bytes, 1000U);
  moved = Buffer();
  EXPECT_EQ(device->usage(MemoryUse::kSlots).current_bytes, 0U);
}

TEST(HostDeviceTest, AssigningABufferFreesTheOldOneOnce) {
  const auto device = MakeHostDevice({});
  auto kept = device->Allocate(10, MemoryUse::kWeights);
  auto given = device->Allocate(20, MemoryUse::kGradients);
  ASSERT_THAT(kept, IsOk());
  ASSERT_THAT(given, IsOk());
  *kept = std::move(*given);
  EXPECT_EQ(kept->size_bytes(), 20U);
  EXPECT_EQ(device->usage(MemoryUse::kWeights).current_bytes, 0U);
  EXPECT_EQ(device->usage(MemoryUse::kGradients).current_bytes, 20U);
}

TEST(HostDeviceTest, MoreThanThereCanBeIsARefusal) {
  const auto device = MakeHostDevice({});
  for (const std::uint64_t size :
       {std::numeric_limits<std::uint64_t>::max(), std::numeric_limits<std::uint64_t>::max() / 2}) {
    EXPECT_THAT(device->Allocate(size, MemoryUse::kWeights), FailsWith(ErrorKind::kSystem));
  }
  EXPECT_EQ(device->usage(MemoryUse::kWeights).peak_bytes, 0U);
}

TEST(HostDeviceTest, CopiesBetweenHostAndDeviceInTheQueuesOrder) {
  for (const QueueMode mode : {QueueMode::kInline, QueueMode::kThreads}) {
    const auto device = MakeHostDevice({.queues = mode, .delay_seed = 3});
    const auto queue = device->MakeQueue("copy");
    const auto buffer = device->Allocate(12, MemoryUse::kOther);
    ASSERT_THAT(buffer, IsOk());
    const Tensor tensor(buffer->data(), DType::kFloat32, {3});
    const std::vector<float> in = {1, 2, 3};
    std::vector<float> out(3);
    device->CopyFromHost(*queue, in.data(), tensor);
    RunOn(*queue, [tensor] { tensor.as<float>()[1] = 7; });
    device->CopyToHost(*queue, tensor, out.data());
    ASSERT_THAT(queue->Synchronize(), IsOk());
    EXPECT_EQ(out, (std::vector<float>{1, 7, 3}));
  }
}

}  // namespace
}  // namespace ckpt::trainer

#include "trainer/device/arena.h"

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "trainer/device/host_device.h"

namespace ckpt::trainer {
namespace {

constexpr std::uint64_t kChunkBytes = 4096;

class ArenaTest : public ::testing::Test {
 protected:
  const std::unique_ptr<Device> device_ = MakeHostDevice({});
  Arena arena_{*device_, kChunkBytes};
};

TEST_F(ArenaTest, TensorsAreAlignedAndApart) {
  const Tensor a = arena_.Allocate(DType::kFloat32, {3, 5});
  const Tensor b = arena_.Allocate(DType::kFloat64, {2});
  EXPECT_EQ(a.dim(0), 3);
  EXPECT_EQ(a.dim(1), 5);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.data) % 256, 0U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b.data) % 256, 0U);
  EXPECT_GE(b.bytes() - a.bytes(), 3 * 5 * 4);
}

TEST_F(ArenaTest, TensorsWithoutElementsAreNotAbsent) {
  EXPECT_TRUE(arena_.Allocate(DType::kFloat32, {0, 5}));
}

TEST_F(ArenaTest, RewindingHandsTheSameMemoryOutAgain) {
  arena_.Allocate(DType::kFloat32, {7});
  const Arena::Mark mark = arena_.Position();
  const Tensor first = arena_.Allocate(DType::kFloat32, {100});
  arena_.Allocate(DType::kFloat32, {5000});  // another chunk
  arena_.Rewind(mark);
  EXPECT_EQ(arena_.Allocate(DType::kFloat32, {100}).data, first.data);
}

TEST_F(ArenaTest, AScopeTakesBackWhatItAllocated) {
  const Tensor before = arena_.Allocate(DType::kFloat32, {1});
  void* inside = nullptr;
  {
    const ArenaScope scope(arena_);
    inside = arena_.Allocate(DType::kFloat32, {1}).data;
  }
  EXPECT_EQ(arena_.Allocate(DType::kFloat32, {1}).data, inside);
  EXPECT_NE(inside, before.data);
}

TEST_F(ArenaTest, LargeTensorsGetAChunkOfTheirOwn) {
  arena_.Allocate(DType::kFloat32, {1});
  const Tensor large = arena_.Allocate(DType::kUint8, {3 * kChunkBytes});
  large.bytes()[3 * kChunkBytes - 1] = std::byte{1};
  EXPECT_EQ(device_->usage(MemoryUse::kActivations).current_bytes, 4 * kChunkBytes);
}

TEST_F(ArenaTest, KeepsItsMemoryForTheNextStep) {
  for (int step = 0; step < 3; ++step) {
    const ArenaScope scope(arena_);
    for (int i = 0; i < 10; ++i) arena_.Allocate(DType::kUint8, {1500});
  }
  // Two tensors a chunk.
  EXPECT_EQ(device_->usage(MemoryUse::kActivations).peak_bytes, 5 * kChunkBytes);
}

TEST_F(ArenaTest, MeasuresTheMostThatWasHandedOut) {
  {
    const ArenaScope scope(arena_);
    arena_.Allocate(DType::kUint8, {1000});
    arena_.Allocate(DType::kUint8, {1000});
  }
  arena_.Allocate(DType::kUint8, {1000});
  EXPECT_EQ(arena_.peak_bytes(), 2048U);
}

}  // namespace
}  // namespace ckpt::trainer

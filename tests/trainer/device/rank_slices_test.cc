#include "trainer/device/rank_slices.h"

#include <cstdint>

#include <gtest/gtest.h>

namespace ckpt::trainer {
namespace {

constexpr int kRanks = 3;

TEST(RankSlicesTest, TheyCoverTheArrayInOrder) {
  for (const std::int64_t elems : {0, 1, 63, 64, 65, 128, 129, 192, 193, 1000}) {
    const RankSlices slices(Tensor(nullptr, DType::kFloat32, {elems}), kRanks);
    EXPECT_EQ(slices.begin(0), 0);
    EXPECT_EQ(slices.begin(kRanks), elems);
    for (int rank = 0; rank < kRanks; ++rank) {
      EXPECT_GE(slices.num_elems(rank), 0) << elems;
      EXPECT_EQ(slices.size_bytes(rank), static_cast<std::uint64_t>(slices.num_elems(rank)) * 4);
    }
  }
}

TEST(RankSlicesTest, TheyBeginAtMultiplesOf128Bytes) {
  const RankSlices slices(Tensor(nullptr, DType::kBfloat16, {1000}), kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(slices.offset_bytes(rank) % 128, 0U);
    EXPECT_GT(slices.num_elems(rank), 0);
  }
}

}  // namespace
}  // namespace ckpt::trainer

#include "formats/dcp/internal/flat_blocks.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ckpt::dcp {
namespace {

using ::testing::ElementsAre;

TEST(FlatBlocksTest, TheLastDimCountsAFlattenedBlock) {
  EXPECT_THAT(StoredShape(Dims{2, 96, 32}, Dims{2, 4, 1}), ElementsAre(2, 4, 1, 768));
  EXPECT_THAT(StoredShape(Dims{32}, Dims{1}), ElementsAre(1, 32));
  const Box box{.offsets = {1, 36, 0}, .sizes = {1, 12, 32}};
  const Box stored = StoredBox(Dims{2, 96, 32}, Dims{2, 4, 1}, box);
  EXPECT_THAT(stored.offsets, ElementsAre(1, 1, 0, 384));
  EXPECT_THAT(stored.sizes, ElementsAre(1, 1, 1, 384));
}

TEST(FlatBlocksTest, OneRankHasAPartForEachBlock) {
  const Dims shape = {2, 96, 32};
  EXPECT_EQ(CutIntoFlat(shape, Dims{2, 2, 1}, WholeBox(shape), 1 << 20).size(), 4U);
  EXPECT_EQ(CutIntoFlat(shape, Dims{1, 1, 1}, WholeBox(shape), 1 << 20).size(), 1U);
  // Ten rows at a time.
  EXPECT_EQ(CutIntoFlat(shape, Dims{2, 1, 1}, WholeBox(shape), 320).size(), 20U);
}

// The position of an element in the C order of what is stored.
std::int64_t StoredPosition(const Dims& stored, const Box& box, std::int64_t within) {
  std::int64_t position = 0;
  for (std::size_t d = 0; d < stored.size(); ++d) {
    position = position * stored[d] + box.offsets[d] + (d + 1 == stored.size() ? within : 0);
  }
  return position;
}

// Every element of a random box is in one part, whose elements follow each other in its block.
TEST(FlatBlocksProperty, PartsAreRangesOfOneBlock) {
  std::mt19937_64 rng(11);
  const auto draw = [&](std::int64_t from, std::int64_t to) {
    return std::uniform_int_distribution<std::int64_t>(from, to)(rng);
  };
  for (int round = 0; round < 2000; ++round) {
    const auto ndim = static_cast<std::size_t>(draw(1, 4));
    Dims shape;
    Dims grid;
    Dims block;
    Box box;
    for (std::size_t d = 0; d < ndim; ++d) {
      grid.push_back(draw(1, 3));
      block.push_back(draw(1, 4));
      shape.push_back(grid[d] * block[d]);
      box.offsets.push_back(draw(0, shape[d] - 1));
      box.sizes.push_back(draw(1, shape[d] - box.offsets[d]));
    }
    const Dims stored = StoredShape(shape, grid);
    std::set<std::int64_t> seen;
    std::int64_t count = 0;
    for (const Box& part : CutIntoFlat(shape, grid, box, draw(1, 40))) {
      const Box in_stored = StoredBox(shape, grid, part);
      ASSERT_LE(in_stored.offsets.back() + in_stored.sizes.back(), stored.back());
      // The part's elements in C order, by where their block and their place in it are.
      Dims at = part.offsets;
      for (std::int64_t n = 0; n < NumElements(part.sizes); ++n, ++count) {
        Dims place;
        std::int64_t flat = 0;
        for (std::size_t d = 0; d < ndim; ++d) {
          ASSERT_TRUE(at[d] >= box.offsets[d] && at[d] < box.offsets[d] + box.sizes[d]);
          place.push_back(at[d] / block[d]);
          flat = flat * block[d] + at[d] % block[d];
        }
        place.push_back(flat);
        const std::int64_t position = StoredPosition(stored, in_stored, n);
        ASSERT_EQ(position, StoredPosition(stored, {.offsets = place, .sizes = {}}, 0));
        ASSERT_TRUE(seen.insert(position).second);
        for (std::size_t d = ndim; d-- > 0;) {
          if (++at[d] < part.offsets[d] + part.sizes[d]) break;
          at[d] = part.offsets[d];
        }
      }
    }
    ASSERT_EQ(count, NumElements(box.sizes));
  }
}

}  // namespace
}  // namespace ckpt::dcp

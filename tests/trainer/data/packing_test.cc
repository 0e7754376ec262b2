#include "trainer/data/internal/packing.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include <gmock/gmock.h>

namespace ckpt::trainer {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::vector<std::uint32_t>> ListedPacks(const Packs& packs) {
  std::vector<std::vector<std::uint32_t>> listed;
  for (std::size_t i = 0; i < packs.size(); ++i)
    listed.emplace_back(packs[i].begin(), packs[i].end());
  return listed;
}

TEST(PackBestFitTest, FillsTheTightestSpace) {
  // 7 and 6 open two packs; 4 fits behind 6 alone; 3 fills the first up.
  EXPECT_THAT(ListedPacks(PackBestFit(std::vector<std::uint32_t>{3, 6, 7, 4}, 10)),
              ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
}

TEST(PackBestFitTest, PacksNothingIntoNothing) {
  EXPECT_THAT(ListedPacks(PackBestFit({}, 10)), IsEmpty());
  EXPECT_THAT(ListedPacks(PackAlone(0)), IsEmpty());
}

TEST(PackBestFitTest, EveryItemIsInOnePackThatHoldsIt) {
  const std::uint64_t seed = 20261121;
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 rng(seed);
  for (int trial = 0; trial < 300; ++trial) {
    const auto capacity = static_cast<std::uint32_t>(rng() % 64 + 1);
    std::vector<std::uint32_t> sizes(rng() % 200 + 1);
    for (std::uint32_t& size : sizes) size = static_cast<std::uint32_t>(rng() % capacity + 1);
    const auto packs = ListedPacks(PackBestFit(sizes, capacity));
    std::vector<std::uint32_t> members;
    std::uint32_t previous_first = 0;
    for (const auto& pack : packs) {
      std::uint32_t used = 0;
      for (const std::uint32_t item : pack) used += sizes[item];
      ASSERT_LE(used, capacity);
      ASSERT_TRUE(std::ranges::is_sorted(pack));
      ASSERT_GE(pack.front(), previous_first);
      previous_first = pack.front();
      members.insert(members.end(), pack.begin(), pack.end());
    }
    std::ranges::sort(members);
    std::vector<std::uint32_t> all(sizes.size());
    std::iota(all.begin(), all.end(), 0U);
    ASSERT_EQ(members, all);
    // No packing has fewer than the sum needs; the bound of best fit decreasing is against the
    // best.
    const auto total = std::accumulate(sizes.begin(), sizes.end(), 0U);
    ASSERT_GE(packs.size(), (total + capacity - 1) / capacity);
  }
}

// Sizes that come in pairs filling a pack exactly.
TEST(PackBestFitTest, FindsThePerfectPackingOfPairs) {
  std::vector<std::uint32_t> sizes;
  for (std::uint32_t i = 1; i < 50; ++i) {
    sizes.push_back(i);
    sizes.push_back(100 - i);
  }
  EXPECT_EQ(PackBestFit(sizes, 100).size(), 49U);
}

TEST(PackAloneTest, GivesEveryItemItsOwn) {
  EXPECT_THAT(ListedPacks(PackAlone(3)),
              ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2)));
}

}  // namespace
}  // namespace ckpt::trainer

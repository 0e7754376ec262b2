#include "trainer/data/internal/permutation.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include <gmock/gmock.h>

namespace ckpt::trainer {
namespace {

using ::testing::ElementsAre;

constexpr std::array<std::uint32_t, 2> kKey = {0x493F0988, 0xB2B7924F};

std::vector<std::uint64_t> All(const Permutation& permutation) {
  std::vector<std::uint64_t> values;
  for (std::uint64_t i = 0; i < permutation.size(); ++i) values.push_back(permutation[i]);
  return values;
}

bool HitsEveryNumberOnce(std::vector<std::uint64_t> values) {
  std::ranges::sort(values);
  for (std::uint64_t i = 0; i < values.size(); ++i) {
    if (values[i] != i) return false;
  }
  return true;
}

// Computed by an independent program.
TEST(PermutationTest, NeverChanges) {
  EXPECT_THAT(All(Permutation(kKey, 0, 10)), ElementsAre(2, 9, 0, 1, 7, 8, 4, 5, 3, 6));
  EXPECT_THAT(All(Permutation(kKey, 7, 13)), ElementsAre(1, 2, 10, 9, 8, 7, 4, 3, 6, 12, 5, 0, 11));
  const Permutation large(kKey, (std::uint64_t{3} << 32) + 1, (std::uint64_t{1} << 40) + 3);
  EXPECT_EQ(large[0], 485947625559U);
  EXPECT_EQ(large[1], 510994205423U);
  EXPECT_EQ(large[std::uint64_t{1} << 40], 902040089673U);
  const Permutation largest(kKey, 0, std::uint64_t{1} << 63);
  EXPECT_EQ(largest[0], 6958519757433888114U);
  EXPECT_EQ(largest[(std::uint64_t{1} << 63) - 1], 5645224748880742518U);
}

TEST(PermutationTest, HitsEveryNumberOnceForEverySize) {
  for (std::uint64_t size = 1; size <= 700; ++size) {
    ASSERT_TRUE(HitsEveryNumberOnce(All(Permutation(kKey, size % 5, size)))) << size;
  }
  for (const std::uint64_t size : {4095U, 4096U, 4097U, 65'537U, 100'003U}) {
    ASSERT_TRUE(HitsEveryNumberOnce(All(Permutation(kKey, 1, size)))) << size;
  }
}

TEST(PermutationTest, DiffersByNumberAndByKey) {
  std::set<std::vector<std::uint64_t>> orders;
  for (std::uint64_t number = 0; number < 200; ++number) {
    orders.insert(All(Permutation(kKey, number, 50)));
    orders.insert(All(Permutation(kKey, number << 32 | 500, 50)));
  }
  orders.insert(All(Permutation({kKey[1], kKey[0]}, 0, 50)));
  EXPECT_EQ(orders.size(), 401U);
}

// All orders of four are equally likely: the smallest domain is the hardest for a network of
// halves.
TEST(PermutationTest, OrdersOfFewAreAboutEquallyLikely) {
  for (const std::uint64_t size : {std::uint64_t{3}, std::uint64_t{4}}) {
    constexpr int kDraws = 24'000;
    std::map<std::vector<std::uint64_t>, int> counts;
    for (std::uint64_t number = 0; number < kDraws; ++number) {
      ++counts[All(Permutation(kKey, number, size))];
    }
    const std::size_t num_orders = size == 3 ? 6 : 24;
    EXPECT_EQ(counts.size(), num_orders);
    const double expected = static_cast<double>(kDraws) / static_cast<double>(num_orders);
    for (const auto& [order, count] : counts) EXPECT_NEAR(count, expected, 6 * std::sqrt(expected));
  }
}

// Where a number goes is uniform, wherever it stands.
TEST(PermutationTest, PlacesAreEquallyLikely) {
  constexpr std::uint64_t kSize = 37;
  constexpr int kDraws = 20'000;
  std::vector<std::vector<int>> counts(kSize, std::vector<int>(kSize));
  for (std::uint64_t number = 0; number < kDraws; ++number) {
    const Permutation permutation(kKey, number, kSize);
    for (std::uint64_t i = 0; i < kSize; ++i) ++counts[i][permutation[i]];
  }
  const double expected = static_cast<double>(kDraws) / static_cast<double>(kSize);
  for (const auto& row : counts) {
    for (const int count : row) EXPECT_NEAR(count, expected, 6 * std::sqrt(expected));
  }
}

// In a random order a number follows its successor as often as any other: once in `size`
// neighbours.
TEST(PermutationTest, KeepsNoNeighbours) {
  const std::vector<std::uint64_t> values = All(Permutation(kKey, 0, 100'000));
  int neighbours = 0;
  for (std::size_t i = 0; i + 1 < values.size(); ++i)
    neighbours += values[i + 1] == values[i] + 1 ? 1 : 0;
  EXPECT_LE(neighbours, 8);  // Poisson of mean 1: more than 8 once in 900,000
}

}  // namespace
}  // namespace ckpt::trainer

// Sums and maxima over ranks: in which order they are formed, and how often they are rounded.
#ifndef CKPT_TESTS_CONFORMANCE_REDUCTIONS_SUITE_H_
#define CKPT_TESTS_CONFORMANCE_REDUCTIONS_SUITE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/tensor/cast.h"
#include "tests/conformance/collectives_fixture.h"
#include "tests/conformance/rank_values.h"
#include "tests/testing/matchers.h"
#include "trainer/device/collectives.h"
#include "trainer/device/grad_write.h"

namespace ckpt::trainer {

TEST_P(CollectivesSuite, ReduceScatterSumsInTheDocumentedOrder) {
  OnEveryRank([](TestRank& self) {
    ForEachType([&]<typename T>(T) {
      for (const std::int64_t count : kCounts) {
        const std::int64_t begin = self.rank() * count;
        std::vector<T> expected;
        for (std::int64_t i = 0; i < count; ++i) {
          expected.push_back(SumAt<T>(self.size(), begin + i));
        }
        const auto full = self.Put(ValuesOf<T>(self.rank(), count * self.size()));
        const auto shard = self.Put<T>(expected.size());
        self.all.ReduceScatter(self.queue, full.tensor(), shard.tensor());
        ExpectSameBits(shard.Read(), expected, "ReduceScatter");

        const auto in_place = self.Put(ValuesOf<T>(self.rank(), count * self.size()));
        self.all.ReduceScatter(self.queue, in_place.tensor(), in_place.tensor().Rows(begin, count));
        const std::vector<T> all = in_place.Read();
        ExpectSameBits(std::vector<T>(all.begin() + begin, all.begin() + begin + count), expected,
                       "ReduceScatter in place");
      }
    });
  });
}

// Σ over the ranks in the type in which it is formed.
template <typename Wire>
auto WideSumAt(int num_ranks, std::int64_t i) {
  if constexpr (std::is_same_v<Wire, Bf16>) {
    return TreeSum<float>(0, num_ranks,
                          [i](int rank) { return FromBf16Bits(ValueAt<Bf16>(rank, i).bits); });
  } else {
    return SumAt<Wire>(num_ranks, i);
  }
}

template <typename Sum, typename Wide>
Sum Written(Wide sum, Sum before, GradWrite write) {
  if constexpr (std::is_same_v<Sum, Bf16>) {
    const auto value = static_cast<float>(sum);
    return {ToBf16Bits(write == GradWrite::kAdd ? FromBf16Bits(before.bits) + value : value)};
  } else {
    const auto value = static_cast<Sum>(sum);
    return write == GradWrite::kAdd ? before + value : value;
  }
}

template <typename Wire, typename Sum>
void TryReduceInto(TestRank& self, GradWrite write) {
  for (const std::int64_t count : kCounts) {
    const auto full = self.Put(ValuesOf<Wire>(self.rank(), count * self.size()));
    const std::vector<Sum> before = ValuesOf<Sum>(self.rank() + 100, count);
    const auto shard = self.Put(before);
    std::vector<Sum> expected;
    for (std::int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<std::size_t>(i);
      expected.push_back(
          Written(WideSumAt<Wire>(self.size(), self.rank() * count + i), before[at], write));
    }
    self.all.ReduceScatterInto(self.queue, full.tensor(), shard.tensor(), write, {});
    self.all.AwaitReaders(self.queue, self.all.num_calls());
    ExpectSameBits(shard.Read(), expected, "ReduceScatterInto");
  }
}

// A sum of bfloat16 is not rounded to bfloat16 before it is stored in float32.
TEST_P(CollectivesSuite, ReduceScatterIntoRoundsOnceWhenItStoresOrAdds) {
  OnEveryRank([](TestRank& self) {
    for (const GradWrite write : {GradWrite::kStore, GradWrite::kAdd}) {
      TryReduceInto<Bf16, float>(self, write);
      TryReduceInto<Bf16, Bf16>(self, write);
      TryReduceInto<float, float>(self, write);
      TryReduceInto<float, Bf16>(self, write);
      TryReduceInto<float, double>(self, write);
      TryReduceInto<double, double>(self, write);
      TryReduceInto<std::int64_t, std::int64_t>(self, write);
    }
  });
}

template <typename T>
T FromInteger(std::int64_t value) {
  if constexpr (std::is_same_v<T, Bf16>) {
    return {ToBf16Bits(static_cast<float>(value))};
  } else {
    return static_cast<T>(value);
  }
}

// Small integers, whose sums and squares are exact in every order.
template <typename Wire, typename Sum>
void TryLeavingSquares(TestRank& self, GradWrite write) {
  struct Run {
    std::int64_t begin, rows, columns;
  };
  constexpr std::int64_t kLongGap = 9001;
  // Rows in packs and not, of one element, longer than what a warp reads at once; with and without
  // elements between them.
  std::vector<Run> runs = {{0, 5, 16},   {88, 3, 2048},  {6232, 40, 1},
                           {6301, 2, 7}, {6400, 1, 640}, {7040, 4, 1031}};
  // More than one launch of a GPU takes.
  while (runs.size() < 80) {
    const Run& last = runs.back();
    runs.push_back({last.begin + last.rows * last.columns, 1, last.columns % 5 + 1});
  }
  const std::int64_t count = runs.back().begin + runs.back().columns + kLongGap;
  const auto value_at = [](int rank, std::int64_t i) { return (i * 7 + rank * 3) % 5 - 2; };
  std::vector<Wire> full;
  std::vector<Sum> before;
  std::vector<std::int64_t> sums;
  for (std::int64_t i = 0; i < count * self.size(); ++i) {
    full.push_back(FromInteger<Wire>(value_at(self.rank(), i)));
  }
  for (std::int64_t i = 0; i < count; ++i) {
    before.push_back(FromInteger<Sum>(i % 3));
    sums.push_back(write == GradWrite::kAdd ? i % 3 : 0);
    for (int rank = 0; rank < self.size(); ++rank) {
      sums.back() += value_at(rank, self.rank() * count + i);
    }
  }
  std::vector<Sum> expected;
  for (const std::int64_t sum : sums) expected.push_back(FromInteger<Sum>(sum));
  std::vector<double> expected_squares;
  for (const Run& run : runs) {
    for (std::int64_t row = 0; row < run.rows; ++row) {
      const auto first = sums.begin() + run.begin + row * run.columns;
      const auto last = first + run.columns;
      expected_squares.push_back(
          static_cast<double>(std::inner_product(first, last, first, std::int64_t{0})));
    }
  }
  const auto squares = self.Put(std::vector<double>(expected_squares.size(), -1));
  std::vector<ShardRows> rows;
  std::int64_t first = 0;
  for (const Run& run : runs) {
    rows.push_back({.begin = run.begin,
                    .columns = run.columns,
                    .squares = squares.tensor().Rows(first, run.rows)});
    first += run.rows;
  }
  const auto sent = self.Put(full);
  const auto shard = self.Put(before);
  self.all.ReduceScatterInto(self.queue, sent.tensor(), shard.tensor(), write, rows);
  self.all.AwaitReaders(self.queue, self.all.num_calls());
  ExpectSameBits(shard.Read(), expected, "ReduceScatterInto");
  ExpectSameBits(squares.Read(), expected_squares, "squares of rows");
}

TEST_P(CollectivesSuite, ReduceScatterIntoLeavesTheSquaresOfRows) {
  OnEveryRank([](TestRank& self) {
    if (!self.all.LeavesSquares()) return;  // its caller reads the sums again
    for (const GradWrite write : {GradWrite::kStore, GradWrite::kAdd}) {
      TryLeavingSquares<Bf16, float>(self, write);
      TryLeavingSquares<Bf16, Bf16>(self, write);
      TryLeavingSquares<float, float>(self, write);
      TryLeavingSquares<float, Bf16>(self, write);
    }
  });
}

TEST_P(CollectivesSuite, AllReduceSumsInTheDocumentedOrder) {
  OnEveryRank([](TestRank& self) {
    ForEachType([&]<typename T>(T) {
      for (const std::int64_t count : kCounts) {
        std::vector<T> expected;
        for (std::int64_t i = 0; i < count; ++i) expected.push_back(SumAt<T>(self.size(), i));
        const auto data = self.Put(ValuesOf<T>(self.rank(), count));
        self.all.AllReduce(self.queue, data.tensor(), ReduceOp::kSum);
        ExpectSameBits(data.Read(), expected, "AllReduce");
      }
    });
  });
}

TEST_P(CollectivesSuite, AllReduceFindsTheMaximum) {
  OnEveryRank([](TestRank& self) {
    ForEachType([&]<typename T>(T) {
      if constexpr (!std::is_same_v<T, Bf16>) {
        for (const std::int64_t count : kCounts) {
          std::vector<T> expected = ValuesOf<T>(0, count);
          for (int rank = 1; rank < self.size(); ++rank) {
            for (std::size_t i = 0; i < expected.size(); ++i) {
              expected[i] = std::max(expected[i], ValueAt<T>(rank, static_cast<std::int64_t>(i)));
            }
          }
          const auto data = self.Put(ValuesOf<T>(self.rank(), count));
          self.all.AllReduce(self.queue, data.tensor(), ReduceOp::kMax);
          ExpectSameBits(data.Read(), expected, "AllReduce max");
        }
      }
    });
  });
}

TEST_P(CollectivesSuite, OneNotANumberIsTheMaximum) {
  OnEveryRank([](TestRank& self) {
    for (int rank = 0; rank < self.size(); ++rank) {
      const float mine = self.rank() == rank ? std::numeric_limits<float>::quiet_NaN() : 1.0F;
      const auto values = self.Put(std::vector<float>{mine, 2.0F});
      self.all.AllReduce(self.queue, values.tensor(), ReduceOp::kMax);
      const std::vector<float> data = values.Read();
      EXPECT_TRUE(std::isnan(data[0])) << "of rank " << rank;
      EXPECT_EQ(data[1], 2.0F);
    }
  });
}

// What lets one mesh continue another's run bit for bit: the sum over all is the sum of the halves'
// sums.
TEST_P(CollectivesSuite, SumsOfHalvesAddUpToTheWholeBitForBit) {
  OnEveryRank([](TestRank& self) {
    const int size = self.size();
    if (size < 2 || (size & (size - 1)) != 0) return;
    const auto whole = self.Put(ValuesOf<float>(self.rank(), 1031));
    const auto parts = self.Put(ValuesOf<float>(self.rank(), 1031));
    self.all.AllReduce(self.queue, whole.tensor(), ReduceOp::kSum);

    auto half = self.Split(self.rank() / (size / 2), self.rank());
    auto across = self.Split(self.rank() % (size / 2), self.rank());
    ASSERT_THAT(half, ckpt::testing::IsOk());
    ASSERT_THAT(across, ckpt::testing::IsOk());
    (*half)->AllReduce(self.queue, parts.tensor(), ReduceOp::kSum);
    (*across)->AllReduce(self.queue, parts.tensor(), ReduceOp::kSum);
    ExpectSameBits(parts.Read(), whole.Read(), "sum of sums");
  });
}

}  // namespace ckpt::trainer

#endif  // CKPT_TESTS_CONFORMANCE_REDUCTIONS_SUITE_H_

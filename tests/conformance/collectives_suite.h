// What every HostGroup, and Collectives of the CPU over it, promise on any number of ranks. A kind of
// world instantiates CollectivesSuite.
#ifndef CKPT_TESTS_CONFORMANCE_COLLECTIVES_SUITE_H_
#define CKPT_TESTS_CONFORMANCE_COLLECTIVES_SUITE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <ostream>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/tensor/cast.h"
#include "tests/conformance/rank_values.h"
#include "tests/testing/matchers.h"
#include "trainer/comm/host_group.h"
#include "trainer/device/collectives.h"
#include "trainer/device/cpu/host_device.h"
#include "trainer/device/grad_write.h"

namespace ckpt::trainer {

struct WorldCase {
  std::string name;
  QueueMode queues = QueueMode::kInline;
  bool reads_peers = false;  // HostDeviceOptions
  // Runs `body(world)` on every rank that lives in this process.
  std::function<Status(const std::function<Status(HostGroup& world)>& body)> run;
};
inline void PrintTo(const WorldCase& c, std::ostream* os) { *os << c.name; }
inline std::string WorldCaseName(const ::testing::TestParamInfo<WorldCase>& test) {
  return test.param.name;
}

inline Result<std::unique_ptr<Collectives>> SplitCollectives(HostGroup& world, Device& device,
                                                             int color, int key) {
  CKPT_ASSIGN_OR_RETURN(std::unique_ptr<HostGroup> part, world.Split(color, key));
  return device.MakeCollectives(std::move(part));
}

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
};

class CollectivesSuite : public ::testing::TestWithParam<WorldCase> {
 protected:
  void OnEveryRank(const std::function<void(TestRank& rank)>& body) {
    const Status status = GetParam().run([&](HostGroup& world) -> Status {
      const std::unique_ptr<Device> device =
          MakeHostDevice({.queues = GetParam().queues,
                          .delay_seed = static_cast<std::uint64_t>(world.rank()) + 1,
                          .reads_peers = GetParam().reads_peers});
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

TEST_P(CollectivesSuite, AllGatherPutsShardsInOrderOfRank) {
  OnEveryRank([](TestRank& self) {
    ForEachType([&]<typename T>(T) {
      for (const std::int64_t count : kCounts) {
        std::vector<T> expected;
        for (int rank = 0; rank < self.size(); ++rank) {
          for (const T& value : ValuesOf<T>(rank, count)) expected.push_back(value);
        }
        std::vector<T> shard = ValuesOf<T>(self.rank(), count);
        std::vector<T> apart(expected.size());
        self.all.AllGather(self.queue, ViewOf(shard), ViewOf(apart));

        std::vector<T> in_place(expected.size());
        const Tensor own = ViewOf(in_place).Rows(self.rank() * count, count);
        if (count > 0) std::memcpy(own.data, shard.data(), own.size_bytes());
        self.all.AllGather(self.queue, own, ViewOf(in_place));

        ASSERT_THAT(self.queue.Synchronize(), ckpt::testing::IsOk());
        ExpectSameBits(apart, expected, "AllGather");
        ExpectSameBits(in_place, expected, "AllGather in place");
      }
    });
  });
}

TEST_P(CollectivesSuite, ReduceScatterSumsInTheDocumentedOrder) {
  OnEveryRank([](TestRank& self) {
    ForEachType([&]<typename T>(T) {
      for (const std::int64_t count : kCounts) {
        const std::int64_t begin = self.rank() * count;
        std::vector<T> expected;
        for (std::int64_t i = 0; i < count; ++i) {
          expected.push_back(SumAt<T>(self.size(), begin + i));
        }
        std::vector<T> full = ValuesOf<T>(self.rank(), count * self.size());
        std::vector<T> shard(expected.size());
        self.all.ReduceScatter(self.queue, ViewOf(full), ViewOf(shard));
        ASSERT_THAT(self.queue.Synchronize(), ckpt::testing::IsOk());
        ExpectSameBits(shard, expected, "ReduceScatter");

        full = ValuesOf<T>(self.rank(), count * self.size());
        self.all.ReduceScatter(self.queue, ViewOf(full), ViewOf(full).Rows(begin, count));
        ASSERT_THAT(self.queue.Synchronize(), ckpt::testing::IsOk());
        ExpectSameBits(std::vector<T>(full.begin() + begin, full.begin() + begin + count), expected,
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
    std::vector<Wire> full = ValuesOf<Wire>(self.rank(), count * self.size());
    std::vector<Sum> shard = ValuesOf<Sum>(self.rank() + 100, count);
    std::vector<Sum> expected;
    for (std::int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<std::size_t>(i);
      expected.push_back(
          Written(WideSumAt<Wire>(self.size(), self.rank() * count + i), shard[at], write));
    }
    self.all.ReduceScatterInto(self.queue, ViewOf(full), ViewOf(shard), write);
    self.all.AwaitReaders(self.queue, self.all.num_calls());
    ASSERT_THAT(self.queue.Synchronize(), ckpt::testing::IsOk());
    ExpectSameBits(shard, expected, "ReduceScatterInto");
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

TEST_P(CollectivesSuite, AllReduceSumsInTheDocumentedOrder) {
  OnEveryRank([](TestRank& self) {
    ForEachType([&]<typename T>(T) {
      for (const std::int64_t count : kCounts) {
        std::vector<T> expected;
        for (std::int64_t i = 0; i < count; ++i) expected.push_back(SumAt<T>(self.size(), i));
        std::vector<T> data = ValuesOf<T>(self.rank(), count);
        self.all.AllReduce(self.queue, ViewOf(data), ReduceOp::kSum);
        ASSERT_THAT(self.queue.Synchronize(), ckpt::testing::IsOk());
        ExpectSameBits(data, expected, "AllReduce");
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
          std::vector<T> data = ValuesOf<T>(self.rank(), count);
          self.all.AllReduce(self.queue, ViewOf(data), ReduceOp::kMax);
          ASSERT_THAT(self.queue.Synchronize(), ckpt::testing::IsOk());
          ExpectSameBits(data, expected, "AllReduce max");
        }
      }
    });
  });
}

TEST_P(CollectivesSuite, OneNotANumberIsTheMaximum) {
  OnEveryRank([](TestRank& self) {
    for (int rank = 0; rank < self.size(); ++rank) {
      const float mine = self.rank() == rank ? std::numeric_limits<float>::quiet_NaN() : 1.0F;
      std::vector<float> data = {mine, 2.0F};
      self.all.AllReduce(self.queue, ViewOf(data), ReduceOp::kMax);
      ASSERT_THAT(self.queue.Synchronize(), ckpt::testing::IsOk());
      EXPECT_TRUE(std::isnan(data[0])) << "of rank " << rank;
      EXPECT_EQ(data[1], 2.0F);
    }
  });
}

// Rank s sends rank r s + 2r rows of three elements, so that some send nothing.
TEST_P(CollectivesSuite, AllToAllMovesUnevenRows) {
  constexpr std::int64_t kWidth = 3;
  const auto rows_between = [](int from, int to) -> std::int64_t { return from + 2 * to; };
  OnEveryRank([&](TestRank& self) {
    std::vector<std::int64_t> send_rows, receive_rows;
    std::vector<float> expected;
    for (int peer = 0; peer < self.size(); ++peer) {
      send_rows.push_back(rows_between(self.rank(), peer));
      receive_rows.push_back(rows_between(peer, self.rank()));
      std::int64_t before = 0;
      for (int other = 0; other < self.rank(); ++other) before += rows_between(peer, other);
      for (std::int64_t i = 0; i < receive_rows.back() * kWidth; ++i) {
        expected.push_back(ValueAt<float>(peer, before * kWidth + i));
      }
    }
    const auto total = [](const std::vector<std::int64_t>& rows) {
      return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
    };
    // A row more than is used at the end of each.
    std::vector<float> send = ValuesOf<float>(self.rank(), (total(send_rows) + 1) * kWidth);
    std::vector<float> receive(expected.size() + kWidth, -7.0F);
    // Another tensor goes with it: the number of each row's sender.
    std::vector<std::int32_t> sent_tags(send.size() / kWidth, self.rank());
    std::vector<std::int32_t> tags(receive.size() / kWidth, -7);
    std::vector<std::int32_t> expected_tags;
    for (int peer = 0; peer < self.size(); ++peer) {
      expected_tags.insert(expected_tags.end(),
                           static_cast<std::size_t>(rows_between(peer, self.rank())), peer);
    }
    // Counts are known when the queue gets to the call, not before.
    std::vector<std::int64_t> send_counts(send_rows.size(), 1'000'000);
    std::vector<std::int64_t> receive_counts(send_rows.size(), 1'000'000);
    self.device.CopyFromHost(self.queue, send_rows.data(), ViewOf(send_counts));
    self.device.CopyFromHost(self.queue, receive_rows.data(), ViewOf(receive_counts));
    const std::vector<RowTransfer> transfers = {
        {.send = ViewOf(send).Reshape({total(send_rows) + 1, kWidth}),
         .receive = ViewOf(receive).Reshape({total(receive_rows) + 1, kWidth})},
        {.send = ViewOf(sent_tags), .receive = ViewOf(tags)}};
    self.all.AllToAll(self.queue, transfers, ViewOf(send_counts), ViewOf(receive_counts));
    ASSERT_THAT(self.queue.Synchronize(), ckpt::testing::IsOk());
    expected.insert(expected.end(), kWidth, -7.0F);
    expected_tags.push_back(-7);
    ExpectSameBits(receive, expected, "AllToAll");
    ExpectSameBits(tags, expected_tags, "AllToAll of the second tensor");
  });
}

TEST_P(CollectivesSuite, ExchangeAndBarrierAreHostCalls) {
  OnEveryRank([](TestRank& self) {
    for (int round = 0; round < 20; ++round) {
      const std::vector<int> mine = {self.rank(), round};
      std::vector<int> all(mine.size() * static_cast<std::size_t>(self.size()));
      ASSERT_THAT(self.world.Exchange(std::as_bytes(std::span(mine)),
                                      std::as_writable_bytes(std::span(all))),
                  ckpt::testing::IsOk());
      for (int rank = 0; rank < self.size(); ++rank) {
        EXPECT_EQ(all[static_cast<std::size_t>(2 * rank)], rank);
        EXPECT_EQ(all[static_cast<std::size_t>(2 * rank + 1)], round);
      }
      ASSERT_THAT(self.world.Barrier(), ckpt::testing::IsOk());
    }
    EXPECT_THAT(self.world.Exchange({}, {}), ckpt::testing::IsOk());
  });
}

// The world's ranks that `part` holds, in its order.
inline std::vector<int> MembersOf(TestRank& self, HostGroup& part) {
  std::vector<int> ranks(static_cast<std::size_t>(part.size()));
  const int mine = self.rank();
  EXPECT_THAT(
      part.Exchange(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(ranks))),
      ckpt::testing::IsOk());
  return ranks;
}

TEST_P(CollectivesSuite, SplitOrdersByKeyThenRank) {
  OnEveryRank([](TestRank& self) {
    const int parity = self.rank() % 2;
    std::vector<int> same_parity;
    for (int rank = parity; rank < self.size(); rank += 2) same_parity.push_back(rank);

    // Any color will do, negative ones too; equal keys leave the order.
    auto upwards = self.world.Split(-parity, 5);
    ASSERT_THAT(upwards, ckpt::testing::IsOk());
    EXPECT_EQ(MembersOf(self, **upwards), same_parity);

    auto downwards = self.world.Split(100 + parity, -self.rank());
    ASSERT_THAT(downwards, ckpt::testing::IsOk());
    EXPECT_EQ(MembersOf(self, **downwards),
              std::vector<int>(same_parity.rbegin(), same_parity.rend()));
    EXPECT_EQ(same_parity[same_parity.size() - 1 - static_cast<std::size_t>((*downwards)->rank())],
              self.rank());

    auto alone = (*downwards)->Split(self.rank(), 0);
    ASSERT_THAT(alone, ckpt::testing::IsOk());
    EXPECT_EQ(MembersOf(self, **alone), std::vector<int>{self.rank()});
  });
}

TEST_P(CollectivesSuite, AGroupOfOneRankCopies) {
  OnEveryRank([](TestRank& self) {
    auto alone = self.Split(self.rank(), 0);
    ASSERT_THAT(alone, ckpt::testing::IsOk());
    ASSERT_EQ((*alone)->size(), 1);
    // Ranks that do not take part are not waited for.
    if (self.rank() % 2 == 1) return;
    std::vector<float> from = ValuesOf<float>(self.rank(), 77);
    std::vector<float> gathered(77), reduced(77), swapped(77), kept = from;
    std::vector<std::int64_t> rows = {77};
    const RowTransfer transfer = {.send = ViewOf(from), .receive = ViewOf(swapped)};
    (*alone)->AllGather(self.queue, ViewOf(from), ViewOf(gathered));
    (*alone)->ReduceScatter(self.queue, ViewOf(from), ViewOf(reduced));
    (*alone)->AllToAll(self.queue, {&transfer, 1}, ViewOf(rows), ViewOf(rows));
    (*alone)->AllReduce(self.queue, ViewOf(kept), ReduceOp::kSum);
    (*alone)->AllGather(self.queue, ViewOf(kept), ViewOf(kept));
    (*alone)->ReduceScatter(self.queue, ViewOf(kept), ViewOf(kept));
    ASSERT_THAT(self.queue.Synchronize(), ckpt::testing::IsOk());
    EXPECT_THAT((*alone)->host().Barrier(), ckpt::testing::IsOk());
    for (const auto* to : {&gathered, &reduced, &swapped, &kept}) {
      ExpectSameBits(*to, from, "copy");
    }
  });
}

// What lets one mesh continue another's run bit for bit: the sum over all is the sum of the halves'
// sums.
TEST_P(CollectivesSuite, SumsOfHalvesAddUpToTheWholeBitForBit) {
  OnEveryRank([](TestRank& self) {
    const int size = self.size();
    if (size < 2 || (size & (size - 1)) != 0) return;
    std::vector<float> whole = ValuesOf<float>(self.rank(), 1031), parts = whole;
    self.all.AllReduce(self.queue, ViewOf(whole), ReduceOp::kSum);
    ASSERT_THAT(self.queue.Synchronize(), ckpt::testing::IsOk());

    auto half = self.Split(self.rank() / (size / 2), self.rank());
    auto across = self.Split(self.rank() % (size / 2), self.rank());
    ASSERT_THAT(half, ckpt::testing::IsOk());
    ASSERT_THAT(across, ckpt::testing::IsOk());
    (*half)->AllReduce(self.queue, ViewOf(parts), ReduceOp::kSum);
    (*across)->AllReduce(self.queue, ViewOf(parts), ReduceOp::kSum);
    ASSERT_THAT(self.queue.Synchronize(), ckpt::testing::IsOk());
    ExpectSameBits(parts, whole, "sum of sums");
  });
}

// Ranks enqueue on two groups in different order; each has its own queue, so nothing waits
// in a circle. Inline queues have no other order than the program's, and ranks that read each other's
// memory must make all calls in one order.
TEST_P(CollectivesSuite, TwoGroupsOnTwoQueuesDoNotDisturbEachOther) {
  const bool may_swap = GetParam().queues == QueueMode::kThreads && !GetParam().reads_peers;
  OnEveryRank([&](TestRank& self) {
    constexpr int kRounds = 30;
    constexpr std::int64_t kCount = 513;
    auto first = self.Split(0, self.rank());
    auto second = self.Split(0, -self.rank());
    ASSERT_THAT(first, ckpt::testing::IsOk());
    ASSERT_THAT(second, ckpt::testing::IsOk());
    const std::unique_ptr<Queue> other = self.device.MakeQueue("second");
    std::vector<std::vector<double>> sums, gathers, shards;
    for (int round = 0; round < kRounds; ++round) {
      sums.push_back(ValuesOf<double>(self.rank(), kCount));
      gathers.emplace_back(kCount * static_cast<std::size_t>(self.size()));
      shards.push_back(ValuesOf<double>(self.rank() + round, kCount));
    }
    const auto sum = [&](std::size_t round) {
      (*first)->AllReduce(self.queue, ViewOf(sums[round]), ReduceOp::kSum);
    };
    const auto gather = [&](std::size_t round) {
      (*second)->AllGather(*other, ViewOf(shards[round]), ViewOf(gathers[round]));
    };
    for (std::size_t round = 0; round < kRounds; ++round) {
      const bool swap = may_swap && self.rank() % 2 == 1;
      swap ? gather(round) : sum(round);
      swap ? sum(round) : gather(round);
    }
    ASSERT_THAT(self.queue.Synchronize(), ckpt::testing::IsOk());
    ASSERT_THAT(other->Synchronize(), ckpt::testing::IsOk());
    std::vector<double> expected_sum;
    for (std::int64_t i = 0; i < kCount; ++i) expected_sum.push_back(SumAt<double>(self.size(), i));
    for (int round = 0; round < kRounds; ++round) {
      ExpectSameBits(sums[static_cast<std::size_t>(round)], expected_sum, "concurrent AllReduce");
      std::vector<double> expected;
      for (int rank = self.size() - 1; rank >= 0; --rank) {  // keys turned the order around
        for (const double value : ValuesOf<double>(rank + round, kCount)) expected.push_back(value);
      }
      ExpectSameBits(gathers[static_cast<std::size_t>(round)], expected, "concurrent AllGather");
    }
  });
}

// The engine's pattern: work makes a shard, a gather waits for it, work waits for the gather.
TEST_P(CollectivesSuite, EventsOrderCollectivesAndWorkOfOtherQueues) {
  OnEveryRank([](TestRank& self) {
    constexpr std::int64_t kCount = 300;
    const std::unique_ptr<Queue> compute = self.device.MakeQueue("compute");
    std::vector<double> shard(kCount), full(kCount * static_cast<std::size_t>(self.size()));
    std::vector<double> seen;
    for (int round = 0; round < 10; ++round) {
      RunOn(*compute, [&, round] { shard.assign(kCount, self.rank() + 100.0 * round); });
      self.queue.Wait(compute->Record());
      self.all.AllGather(self.queue, ViewOf(shard), ViewOf(full));
      compute->Wait(self.queue.Record());
      RunOn(*compute, [&] { seen.push_back(std::accumulate(full.begin(), full.end(), 0.0)); });
    }
    ASSERT_THAT(compute->Synchronize(), ckpt::testing::IsOk());
    for (int round = 0; round < 10; ++round) {
      double expected = 0;
      for (int rank = 0; rank < self.size(); ++rank) expected += kCount * (rank + 100.0 * round);
      EXPECT_EQ(seen[static_cast<std::size_t>(round)], expected);
    }
  });
}

}  // namespace ckpt::trainer

#endif  // CKPT_TESTS_CONFORMANCE_COLLECTIVES_SUITE_H_

// What groups of ranks are, and how their calls are ordered on one queue and on several.
#ifndef CKPT_TESTS_CONFORMANCE_GROUPS_SUITE_H_
#define CKPT_TESTS_CONFORMANCE_GROUPS_SUITE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/conformance/collectives_fixture.h"
#include "tests/conformance/rank_values.h"
#include "tests/testing/matchers.h"
#include "trainer/comm/host_group.h"
#include "trainer/device/collectives.h"
#include "trainer/device/grad_write.h"

namespace ckpt::trainer {

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
    const std::vector<float> values = ValuesOf<float>(self.rank(), 77);
    const auto from = self.Put(values);
    const auto gathered = self.Put<float>(77);
    const auto reduced = self.Put<float>(77);
    const auto swapped = self.Put<float>(77);
    const auto kept = self.Put(values);
    const auto rows = self.Put(std::vector<std::int64_t>{77});
    const RowTransfer transfer = {.send = from.tensor(), .receive = swapped.tensor()};
    (*alone)->AllGather(self.queue, from.tensor(), gathered.tensor());
    (*alone)->ReduceScatter(self.queue, from.tensor(), reduced.tensor());
    const RowCounts counts = (*alone)->ReadCounts(self.queue, rows.tensor());
    (*alone)->AllToAll(self.queue, {&transfer, 1}, counts, counts);
    (*alone)->AllReduce(self.queue, kept.tensor(), ReduceOp::kSum);
    (*alone)->AllGather(self.queue, kept.tensor(), kept.tensor());
    (*alone)->ReduceScatter(self.queue, kept.tensor(), kept.tensor());
    // One queue or one host call uses a group at a time.
    ASSERT_THAT(self.queue.Synchronize(), ckpt::testing::IsOk());
    EXPECT_THAT((*alone)->host().Barrier(), ckpt::testing::IsOk());
    for (const auto* to : {&gathered, &reduced, &swapped, &kept}) {
      ExpectSameBits(to->Read(), values, "copy");
    }
    (*alone)->ReduceScatterInto(self.queue, from.tensor(), kept.tensor(), GradWrite::kAdd, {});
    std::vector<float> doubled = values;
    for (float& value : doubled) value += value;
    ExpectSameBits(kept.Read(), doubled, "sum");
  });
}

// Ranks enqueue on two groups in different order; each has its own queue, so nothing waits
// in a circle. Inline queues have no other order than the program's, and ranks that read each
// other's memory must make all calls in one order.
TEST_P(CollectivesSuite, TwoGroupsOnTwoQueuesDoNotDisturbEachOther) {
  OnEveryRank([&](TestRank& self) {
    constexpr int kRounds = 30;
    constexpr std::int64_t kCount = 513;
    auto first = self.Split(0, self.rank());
    auto second = self.Split(0, -self.rank());
    ASSERT_THAT(first, ckpt::testing::IsOk());
    ASSERT_THAT(second, ckpt::testing::IsOk());
    const std::unique_ptr<Queue> other = self.device.MakeQueue("second");
    std::vector<DeviceArray<double>> sums, gathers, shards;
    for (int round = 0; round < kRounds; ++round) {
      sums.push_back(self.Put(ValuesOf<double>(self.rank(), kCount)));
      gathers.push_back(self.Put<double>(kCount * static_cast<std::size_t>(self.size())));
      shards.push_back(self.Put(ValuesOf<double>(self.rank() + round, kCount)));
    }
    const auto sum = [&](std::size_t round) {
      (*first)->AllReduce(self.queue, sums[round].tensor(), ReduceOp::kSum);
    };
    const auto gather = [&](std::size_t round) {
      (*second)->AllGather(*other, shards[round].tensor(), gathers[round].tensor());
    };
    for (std::size_t round = 0; round < kRounds; ++round) {
      const bool swap = GetParam().may_swap_groups && self.rank() % 2 == 1;
      swap ? gather(round) : sum(round);
      swap ? sum(round) : gather(round);
    }
    ASSERT_THAT(self.queue.Synchronize(), ckpt::testing::IsOk());
    ASSERT_THAT(other->Synchronize(), ckpt::testing::IsOk());
    std::vector<double> expected_sum;
    for (std::int64_t i = 0; i < kCount; ++i) expected_sum.push_back(SumAt<double>(self.size(), i));
    for (int round = 0; round < kRounds; ++round) {
      ExpectSameBits(sums[static_cast<std::size_t>(round)].Read(), expected_sum,
                     "concurrent AllReduce");
      std::vector<double> expected;
      for (int rank = self.size() - 1; rank >= 0; --rank) {  // keys turned the order around
        for (const double value : ValuesOf<double>(rank + round, kCount)) expected.push_back(value);
      }
      ExpectSameBits(gathers[static_cast<std::size_t>(round)].Read(), expected,
                     "concurrent AllGather");
    }
  });
}

// The engine's pattern: work makes a shard, a gather waits for it, work waits for the gather.
// Nothing waits on the host, so that a missing wait shows.
TEST_P(CollectivesSuite, EventsOrderCollectivesAndWorkOfOtherQueues) {
  OnEveryRank([](TestRank& self) {
    constexpr std::size_t kRounds = 10;
    constexpr std::size_t kCount = 30'000;
    const std::size_t full_count = kCount * static_cast<std::size_t>(self.size());
    const std::unique_ptr<Queue> compute = self.device.MakeQueue("compute");
    const auto shard = self.Put<float>(kCount);
    const auto full = self.Put<float>(full_count);
    Result<PinnedBuffer> made =
        self.device.AllocatePinned(kRounds * (kCount + full_count) * sizeof(float));
    ASSERT_THAT(made.status(), ckpt::testing::IsOk());
    auto* const written = reinterpret_cast<float*>(made->data());
    float* const seen = written + kRounds * kCount;
    for (std::size_t round = 0; round < kRounds; ++round) {
      std::fill_n(written + round * kCount, kCount,
                  static_cast<float>(self.rank() + 100 * static_cast<int>(round)));
    }
    for (std::size_t round = 0; round < kRounds; ++round) {
      self.device.CopyFromHost(*compute, written + round * kCount, shard.tensor());
      self.queue.Wait(compute->Record());
      self.all.AllGather(self.queue, shard.tensor(), full.tensor());
      compute->Wait(self.queue.Record());
      self.device.CopyToHost(*compute, full.tensor(), seen + round * full_count);
    }
    ASSERT_THAT(compute->Synchronize(), ckpt::testing::IsOk());
    for (std::size_t i = 0; i < kRounds * full_count; ++i) {
      const auto round = static_cast<int>(i / full_count);
      const auto rank = static_cast<int>(i % full_count / kCount);
      ASSERT_EQ(seen[i], static_cast<float>(rank + 100 * round)) << "round " << round;
    }
  });
}

}  // namespace ckpt::trainer

#endif  // CKPT_TESTS_CONFORMANCE_GROUPS_SUITE_H_

// What every HostGroup, and Collectives of any device over it, promise on any number of ranks. A
// kind of world and device instantiates CollectivesSuite.
#ifndef CKPT_TESTS_CONFORMANCE_COLLECTIVES_SUITE_H_
#define CKPT_TESTS_CONFORMANCE_COLLECTIVES_SUITE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
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

#include "core/base/check.h"
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

TEST_P(CollectivesSuite, AllGatherPutsShardsInOrderOfRank) {
  OnEveryRank([](TestRank& self) {
    ForEachType([&]<typename T>(T) {
      for (const std::int64_t count : kCounts) {
        std::vector<T> expected;
        for (int rank = 0; rank < self.size(); ++rank) {
          for (const T& value : ValuesOf<T>(rank, count)) expected.push_back(value);
        }
        const std::vector<T> mine = ValuesOf<T>(self.rank(), count);
        const auto shard = self.Put(mine);
        const auto apart = self.Put<T>(expected.size());
        self.all.AllGather(self.queue, shard.tensor(), apart.tensor());

        const auto in_place = self.Put<T>(expected.size());
        const Tensor own = in_place.tensor().Rows(self.rank() * count, count);
        self.device.CopyFromHost(self.queue, mine.data(), own);
        self.all.AllGather(self.queue, own, in_place.tensor());

        ExpectSameBits(apart.Read(), expected, "AllGather");
        ExpectSameBits(in_place.Read(), expected, "AllGather in place");
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

TEST_P(CollectivesSuite, ScatterPartsLeavesTheTermsOfASum) {
  OnEveryRank([](TestRank& self) {
    for (const std::int64_t count : kCounts) {
      const auto full = self.Put(ValuesOf<Bf16>(self.rank(), count * self.size()));
      const auto parts = self.Put(ValuesOf<Bf16>(self.rank() + 100, count * self.size()));
      std::vector<Tensor> terms;
      for (int rank = 0; rank < self.size(); ++rank) {
        terms.push_back(parts.tensor().Rows(rank * count, count));
      }
      std::vector<Bf16> expected;
      for (int rank = 0; rank < self.size(); ++rank) {
        for (std::int64_t i = 0; i < count; ++i) {
          expected.push_back(ValueAt<Bf16>(rank, self.rank() * count + i));
        }
      }
      self.all.ScatterParts(self.queue, full.tensor(), terms);
      self.all.AwaitReaders(self.queue, self.all.num_calls());
      ExpectSameBits(parts.Read(), expected, "ScatterParts");

      // This rank's own term stays where it is.
      const auto others = self.Put(ValuesOf<Bf16>(self.rank() + 200, count * self.size()));
      const auto own = static_cast<std::size_t>(self.rank());
      for (int rank = 0; rank < self.size(); ++rank) {
        terms[static_cast<std::size_t>(rank)] = others.tensor().Rows(rank * count, count);
      }
      terms[own] = full.tensor().Rows(self.rank() * count, count);
      self.all.ScatterParts(self.queue, full.tensor(), terms);
      self.all.AwaitReaders(self.queue, self.all.num_calls());
      std::vector<Bf16> received = others.Read();
      const std::vector<Bf16> kept = full.Read();
      std::copy_n(kept.begin() + self.rank() * count, count,
                  received.begin() + self.rank() * count);
      ExpectSameBits(received, expected, "ScatterParts, in place");
    }
  });
}

// Each rank writes a row of everybody's array.
TEST_P(CollectivesSuite, AwaitWritersShowsWhatTheOthersWrote) {
  OnEveryRank([](TestRank& self) {
    constexpr std::int64_t kCount = 1031;
    std::vector<float> expected;
    for (int rank = 0; rank < self.size(); ++rank) {
      for (const float value : ValuesOf<float>(rank, kCount)) expected.push_back(value);
    }
    const std::vector<float> mine = ValuesOf<float>(self.rank(), kCount);
    const auto array = self.Put<float>(expected.size());
    const Result<std::vector<Tensor>> views = self.all.Views(array.tensor());
    ASSERT_THAT(views, ckpt::testing::IsOk());
    if (views->empty()) return;  // ranks are processes, or have NCCL
    for (const Tensor& view : *views) {
      self.device.CopyFromHost(self.queue, mine.data(), view.Rows(self.rank() * kCount, kCount));
    }
    self.all.AwaitWriters(self.queue, self.queue.Record());
    ExpectSameBits(array.Read(), expected, "AwaitWriters");
  });
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
    const auto num_sent = static_cast<std::size_t>(total(send_rows)) + 1;
    const auto num_received = static_cast<std::size_t>(total(receive_rows)) + 1;
    const auto send =
        self.Put(ValuesOf<float>(self.rank(), static_cast<std::int64_t>(num_sent) * kWidth));
    const auto receive = self.Put(std::vector<float>(num_received * kWidth, -7.0F));
    // Another tensor goes with it: the number of each row's sender.
    const auto sent_tags = self.Put(std::vector<std::int32_t>(num_sent, self.rank()));
    const auto tags = self.Put(std::vector<std::int32_t>(num_received, -7));
    std::vector<std::int32_t> expected_tags;
    for (int peer = 0; peer < self.size(); ++peer) {
      expected_tags.insert(expected_tags.end(),
                           static_cast<std::size_t>(rows_between(peer, self.rank())), peer);
    }
    // Counts are known when the queue gets to the call, not before.
    const auto send_counts = self.Put(std::vector<std::int64_t>(send_rows.size(), 1'000'000));
    const auto receive_counts = self.Put(std::vector<std::int64_t>(send_rows.size(), 1'000'000));
    self.device.CopyFromHost(self.queue, send_rows.data(), send_counts.tensor());
    self.device.CopyFromHost(self.queue, receive_rows.data(), receive_counts.tensor());
    const std::vector<RowTransfer> transfers = {
        {.send = send.tensor().Reshape({total(send_rows) + 1, kWidth}),
         .receive = receive.tensor().Reshape({total(receive_rows) + 1, kWidth})},
        {.send = sent_tags.tensor(), .receive = tags.tensor()}};
    const RowCounts sent = self.all.ReadCounts(self.queue, send_counts.tensor());
    const RowCounts received = self.all.ReadCounts(self.queue, receive_counts.tensor());
    self.all.AllToAll(self.queue, transfers, sent, received);
    expected.insert(expected.end(), kWidth, -7.0F);
    expected_tags.push_back(-7);
    ExpectSameBits(receive.Read(), expected, "AllToAll");
    ExpectSameBits(tags.Read(), expected_tags, "AllToAll of the second tensor");

    // The rows go home by the same counts.
    const std::vector<float> values = send.Read();
    const std::vector<float> zeros(values.size());
    self.device.CopyFromHost(self.queue, zeros.data(), send.tensor());
    const RowTransfer back = {.send = transfers[0].receive, .receive = transfers[0].send};
    self.all.AllToAll(self.queue, {&back, 1}, received, sent);
    std::vector<float> home = values;
    std::fill(home.end() - kWidth, home.end(), 0.0F);
    ExpectSameBits(send.Read(), home, "AllToAll back");
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

#endif  // CKPT_TESTS_CONFORMANCE_COLLECTIVES_SUITE_H_

// Where collectives that move elements, and sum nothing, put them.
#ifndef CKPT_TESTS_CONFORMANCE_TRANSFERS_SUITE_H_
#define CKPT_TESTS_CONFORMANCE_TRANSFERS_SUITE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/conformance/collectives_fixture.h"
#include "tests/conformance/rank_values.h"
#include "tests/testing/matchers.h"
#include "trainer/device/collectives.h"

namespace ckpt::trainer {

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

}  // namespace ckpt::trainer

#endif  // CKPT_TESTS_CONFORMANCE_TRANSFERS_SUITE_H_

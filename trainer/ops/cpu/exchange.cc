// The exchange of rows between the ranks that divide the experts.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/base/check.h"
#include "trainer/device/cpu/host_device.h"
#include "trainer/ops/cpu/internal/host_ops_impl.h"
#include "trainer/ops/cpu/internal/row_blocks.h"

namespace ckpt::trainer {
namespace {

// How many rows every rank sends to every expert, from the offsets of all ranks [P, E + 1].
class SentRows {
 public:
  explicit SentRows(const Tensor& offsets)
      : offsets_(offsets.as<const std::int32_t>()),
        num_ranks_(offsets.dim(0)),
        num_experts_(offsets.dim(1) - 1),
        num_held_(num_experts_ / num_ranks_) {}

  [[nodiscard]] std::int64_t num_ranks() const { return num_ranks_; }
  [[nodiscard]] std::int64_t num_held() const { return num_held_; }
  [[nodiscard]] std::int64_t to_expert(std::int64_t source, std::int64_t expert) const {
    return Between(source, expert, expert + 1);
  }
  [[nodiscard]] std::int64_t to_rank(std::int64_t source, std::int64_t rank) const {
    return Between(source, rank * num_held_, (rank + 1) * num_held_);
  }
  // The most rows that the experts of a rank get.
  [[nodiscard]] std::int64_t MostReceived() const {
    std::int64_t most = 0;
    for (std::int64_t rank = 0; rank < num_ranks_; ++rank) {
      std::int64_t received = 0;
      for (std::int64_t source = 0; source < num_ranks_; ++source) {
        received += to_rank(source, rank);
      }
      most = std::max(most, received);
    }
    return most;
  }

 private:
  [[nodiscard]] std::int64_t Between(std::int64_t source, std::int64_t begin,
                                     std::int64_t end) const {
    const std::int32_t* const at = offsets_ + source * (num_experts_ + 1);
    return at[end] - at[begin];
  }

  const std::int32_t* offsets_;
  std::int64_t num_ranks_;
  std::int64_t num_experts_;
  std::int64_t num_held_;
};

void Plan(const SentRows& sent, std::int64_t rank, bool separates_sources,
          const ExchangePlan& plan) {
  for (std::int64_t peer = 0; peer < sent.num_ranks(); ++peer) {
    plan.send_rows.as<std::int64_t>()[peer] = sent.to_rank(rank, peer);
    plan.receive_rows.as<std::int64_t>()[peer] = sent.to_rank(peer, rank);
  }
  const std::int64_t first = rank * sent.num_held();
  // Where the next rows of each source are received.
  std::vector<std::int64_t> received(static_cast<std::size_t>(sent.num_ranks()));
  for (std::size_t source = 1; source < received.size(); ++source) {
    const auto before = static_cast<std::int64_t>(source) - 1;
    received[source] = received[source - 1] + sent.to_rank(before, rank);
  }
  auto* arrival = plan.arrival.as<std::int32_t>();
  auto* offset = plan.offsets.as<std::int32_t>();
  std::int32_t row = 0;
  *offset++ = 0;
  for (std::int64_t held = 0; held < sent.num_held(); ++held) {
    for (std::int64_t source = 0; source < sent.num_ranks(); ++source) {
      std::int64_t& from = received[static_cast<std::size_t>(source)];
      const std::int64_t rows = sent.to_expert(source, first + held);
      for (std::int64_t i = 0; i < rows; ++i) {
        arrival[row++] = static_cast<std::int32_t>(from++);
      }
      if (separates_sources || source + 1 == sent.num_ranks()) *offset++ = row;
    }
  }
}

// Rows of x and y, copied as bytes, and the permutation between those in use.
struct MovedRows {
  const std::byte* x = nullptr;
  std::byte* y = nullptr;
  const std::int32_t* index = nullptr;
  Tensor count;
  std::int64_t max_rows = 0;
  std::size_t row_bytes = 0;

  [[nodiscard]] std::size_t OffsetOf(std::int64_t row) const {
    CKPT_CHECK(row >= 0 && row < max_rows);
    return static_cast<std::size_t>(row) * row_bytes;
  }
};

MovedRows RowsToMove(const Tensor& x, const Tensor& index, const Tensor& count, const Tensor& y) {
  CKPT_CHECK(index.dtype == DType::kInt32 && x.dtype == y.dtype && x.num_elems() == y.num_elems());
  const std::int64_t rows = index.num_elems();
  CKPT_CHECK(rows == 0 || (x.ndim > 0 && x.dim(0) == rows && y.dim(0) == rows));
  const std::size_t row_bytes = rows == 0 ? 0 : x.size_bytes() / static_cast<std::size_t>(rows);
  return {x.bytes(), y.bytes(), index.as<const std::int32_t>(), count, rows, row_bytes};
}

// Calls `move(i, index[i])` for the rows in use.
template <typename Move>
void ForRows(Parallel& parallel, const MovedRows& moved, const Move& move) {
  parallel.For(RowsInUse(moved.count, moved.max_rows),
               GrainRows(static_cast<std::int64_t>(moved.row_bytes)),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i) move(i, moved.index[i]);
               });
}

}  // namespace

void HostOps::ChosenRanks(Queue& queue, const Tensor& experts, std::int64_t num_held,
                          const Tensor& ranks) {
  CKPT_CHECK(experts.dtype == DType::kInt32 && experts.ndim == 2 && num_held > 0);
  CKPT_CHECK(ranks.dtype == DType::kInt32 && ranks.ndim == 2 && ranks.dim(0) == experts.dim(0));
  RunOn(queue, [=] {
    const std::int64_t topk = experts.dim(1);
    const std::int64_t num_ranks = ranks.dim(1);
    const auto* choice = experts.as<const std::int32_t>();
    auto* row = ranks.as<std::int32_t>();
    std::fill_n(row, ranks.num_elems(), -1);
    for (std::int64_t t = 0; t < experts.dim(0); ++t, choice += topk, row += num_ranks) {
      for (std::int64_t k = 0; k < topk; ++k) {
        if (choice[k] < 0) continue;
        const std::int64_t rank = choice[k] / num_held;
        CKPT_CHECK(rank < num_ranks);
        row[rank] = static_cast<std::int32_t>(rank);
      }
    }
  });
}

void HostOps::PlanExchange(Queue& queue, std::int64_t rank, const Tensor& offsets,
                           const ExchangePlan& plan, const Tensor& overflows) {
  CKPT_CHECK(offsets.dtype == DType::kInt32 && offsets.ndim == 2);
  const std::int64_t num_ranks = offsets.dim(0);
  const std::int64_t num_experts = offsets.dim(1) - 1;
  CKPT_CHECK(rank >= 0 && rank < num_ranks && num_experts % num_ranks == 0);
  CKPT_CHECK(plan.send_rows.dtype == DType::kInt64 && plan.receive_rows.dtype == DType::kInt64);
  CKPT_CHECK(plan.send_rows.num_elems() == num_ranks && plan.receive_rows.num_elems() == num_ranks);
  CKPT_CHECK(plan.arrival.dtype == DType::kInt32 && plan.offsets.dtype == DType::kInt32);
  const std::int64_t num_ranges = plan.offsets.num_elems() - 1;
  CKPT_CHECK(num_ranges == num_experts || num_ranges == num_experts / num_ranks);
  CKPT_CHECK(overflows.dtype == DType::kInt64 && overflows.num_elems() == 1);
  RunOn(queue, [=] {
    const SentRows sent(offsets);
    if (sent.MostReceived() <= plan.arrival.num_elems()) {
      return Plan(sent, rank, /*separates_sources=*/num_ranges == num_experts, plan);
    }
    std::fill_n(plan.send_rows.as<std::int64_t>(), num_ranks, 0);
    std::fill_n(plan.receive_rows.as<std::int64_t>(), num_ranks, 0);
    std::fill_n(plan.offsets.as<std::int32_t>(), num_ranges + 1, 0);
    ++*overflows.as<std::int64_t>();
  });
}

void HostOps::GatherRows(Queue& queue, const Tensor& x, const Tensor& index, const Tensor& count,
                         const Tensor& y) {
  RunOn(queue, [this, moved = RowsToMove(x, index, count, y)] {
    ForRows(parallel_, moved, [&](std::int64_t i, std::int64_t place) {
      std::memcpy(moved.y + moved.OffsetOf(i), moved.x + moved.OffsetOf(place), moved.row_bytes);
    });
  });
}

void HostOps::ScatterRows(Queue& queue, const Tensor& x, const Tensor& index, const Tensor& count,
                          const Tensor& y) {
  RunOn(queue, [this, moved = RowsToMove(x, index, count, y)] {
    ForRows(parallel_, moved, [&](std::int64_t i, std::int64_t place) {
      std::memcpy(moved.y + moved.OffsetOf(place), moved.x + moved.OffsetOf(i), moved.row_bytes);
    });
  });
}

}  // namespace ckpt::trainer

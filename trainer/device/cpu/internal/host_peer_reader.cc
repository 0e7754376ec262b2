#include "trainer/device/cpu/internal/host_peer_reader.h"

#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/base/widest_vectors.h"
#include "core/tensor/cast.h"
#include "trainer/comm/row_exchange.h"
#include "trainer/device/cpu/host_device.h"
#include "trainer/device/cpu/internal/host_collectives.h"
#include "trainer/device/cpu/internal/host_queues.h"
#include "trainer/device/cpu/internal/reduce_tree.h"
#include "trainer/device/cpu/lane_sum.h"

namespace ckpt::trainer {
namespace {

std::span<const std::int64_t> CountsIn(const Tensor& counts) {
  if (!counts) return {};
  return {counts.as<const std::int64_t>(), static_cast<std::size_t>(counts.num_elems())};
}

// Σ x² of each row, as Ops::SumSquares has it. The square of a float is exact in double, so the
// bits are the same whether or not an addition is fused with it.
template <typename Load>
void SquareRows(const ShardRows& rows, const Load& load) {
  auto* const squares = rows.squares.as<double>();
  WithWidestVectors([=] {
    for (std::int64_t row = 0; row < rows.rows(); ++row) {
      const std::int64_t first = rows.begin + row * rows.columns;
      squares[row] = LaneSum<double>(rows.columns, [=](std::int64_t i) {
        const auto value = static_cast<double>(load(first + i));
        return value * value;
      });
    }
  });
}
void SquareRows(const PeerReduction& reduction) {
  for (const ShardRows& rows : reduction.rows) {
    CKPT_CHECK(rows.end() <= reduction.count);
    if (reduction.result == DType::kFloat32) {
      const auto* const sums = reinterpret_cast<const float*>(reduction.out);
      SquareRows(rows, [=](std::int64_t i) { return sums[i]; });
    } else {
      CKPT_CHECK(reduction.result == DType::kBfloat16);
      const auto* const sums = reinterpret_cast<const std::uint16_t*>(reduction.out);
      SquareRows(rows, [=](std::int64_t i) { return FromBf16Bits(sums[i]); });
    }
  }
}

class HostPeerReader final : public PeerReader {
 public:
  void WaitFor(Queue& queue, int peer, const Event& event) override {
    static_cast<HostQueue&>(queue).Enqueue([peer, event]() -> Status {
      const Status status = AwaitHostEvent(event);
      return status.ok() ? OkStatus() : GaveUp(peer, status);
    });
  }
  void Await(const Event& event) override { (void)AwaitHostEvent(event); }

  void Copy(Queue& queue, const std::byte* from, std::byte* to, std::uint64_t size_bytes) override {
    if (from == to || size_bytes == 0) return;
    RunOn(queue, [=] { std::memcpy(to, from, size_bytes); });
  }

  void Reduce(Queue& queue, const PeerReduction& reduction) override {
    RunOn(queue, [reduction] {
      if (reduction.op == ReduceOp::kSum) {
        SumByTree(reduction.wire, reduction.parts, reduction.result, reduction.write, reduction.out,
                  reduction.count);
        SquareRows(reduction);
      } else {
        ReduceByTree(reduction.op, reduction.wire, reduction.parts, reduction.out, reduction.count);
      }
    });
  }

  void ReceiveRows(Queue& queue, int rank, std::vector<PeerRows> sent,
                   const PeerRows& received) override {
    static_cast<HostQueue&>(queue).Enqueue([rank, sent = std::move(sent), received]() -> Status {
      std::vector<RowExchange> rows;
      for (std::size_t peer = 0; peer < sent.size(); ++peer) {
        const bool is_own = peer == static_cast<std::size_t>(rank);
        rows.push_back(RowsOf({.send = sent[peer].rows, .receive = received.rows},
                              CountsIn(sent[peer].counts),
                              CountsIn(is_own ? received.counts : Tensor())));
      }
      std::vector<const RowExchange*> all;
      for (const RowExchange& of_rank : rows) all.push_back(&of_rank);
      return trainer::ReceiveRows(rank, rows[static_cast<std::size_t>(rank)], all);
    });
  }
};

}  // namespace

std::unique_ptr<PeerReader> MakeHostPeerReader() { return std::make_unique<HostPeerReader>(); }

}  // namespace ckpt::trainer

#include "trainer/device/cpu/internal/host_peer_reader.h"

#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "trainer/comm/row_exchange.h"
#include "trainer/device/cpu/host_device.h"
#include "trainer/device/cpu/internal/host_collectives.h"
#include "trainer/device/cpu/internal/host_queues.h"
#include "trainer/device/cpu/internal/reduce_tree.h"

namespace ckpt::trainer {
namespace {

std::span<const std::int64_t> CountsIn(const Tensor& counts) {
  if (!counts) return {};
  return {counts.as<const std::int64_t>(), static_cast<std::size_t>(counts.num_elems())};
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

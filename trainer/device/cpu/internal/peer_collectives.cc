#include "trainer/device/cpu/internal/peer_collectives.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "trainer/comm/agreement.h"
#include "trainer/comm/row_exchange.h"
#include "trainer/device/cpu/host_device.h"
#include "trainer/device/cpu/internal/host_collectives.h"
#include "trainer/device/cpu/internal/host_queues.h"
#include "trainer/device/cpu/internal/peer_board.h"
#include "trainer/device/cpu/internal/reduce_tree.h"

namespace ckpt::trainer {
namespace {

using Operands = std::vector<PeerOperand>;

void CopyUnlessSame(const std::byte* from, std::byte* to, std::uint64_t size_bytes) {
  if (from != to && size_bytes != 0) std::memcpy(to, from, size_bytes);
}

std::vector<const std::byte*> DataOf(const Operands& shown, std::uint64_t offset_bytes) {
  std::vector<const std::byte*> data;
  for (const PeerOperand& operand : shown) data.push_back(operand.data + offset_bytes);
  return data;
}

class PeerCollectives final : public Collectives {
 public:
  PeerCollectives(std::unique_ptr<HostGroup> group, std::shared_ptr<PeerBoard> board)
      : Collectives(std::move(group)), board_(std::move(board)) {}
  ~PeerCollectives() override { Leave(); }

  [[nodiscard]] std::uint64_t num_calls() const override { return num_calls_; }

  void AllGather(Queue& queue, const Tensor& shard, const Tensor& full) override {
    Gather(queue, shard, full, queue.Record());
    AwaitReaders(queue, num_calls_);
  }
  void GatherShards(Queue& queue, const Tensor& shard, const Tensor& full,
                    const Event& ready) override {
    CKPT_CHECK(size() == 1 || IsRegistered(shard));
    queue.Wait(ready);
    Gather(queue, shard, full, ready);
  }
  void ReduceScatterInto(Queue& queue, const Tensor& full, const Tensor& shard,
                         GradWrite write) override;
  void AllReduce(Queue& queue, const Tensor& data, ReduceOp op) override;
  void AllToAll(Queue& queue, std::span<const RowTransfer> transfers, const Tensor& send_rows,
                const Tensor& receive_rows) override;

  void AwaitReaders(Queue& queue, std::uint64_t calls) override;
  void Register(const Buffer& memory) override {
    registered_.emplace_back(memory.data(), memory.size_bytes());
  }
  void Leave() override;

 private:
  // One call: shows the operand, waits on the queue until those of all ranks are ready, and enqueues
  // `pull(operands of all ranks)`, which reads them and returns a Status.
  template <typename Pull>
  void Call(Queue& queue, PeerOperand mine, Pull pull);
  void Gather(Queue& queue, const Tensor& shard, const Tensor& full, const Event& ready);
  // Work that is enqueued from now on comes after `event` of rank `peer`.
  static void WaitFor(Queue& queue, std::size_t peer, const Event& event);
  [[nodiscard]] bool IsRegistered(const Tensor& tensor) const;

  const std::shared_ptr<PeerBoard> board_;
  std::uint64_t num_calls_ = 0;
  std::vector<MutableByteSpan> registered_;
};

void PeerCollectives::WaitFor(Queue& queue, std::size_t peer, const Event& event) {
  if (event.state() == nullptr) return;
  static_cast<HostQueue&>(queue).Enqueue([peer, event]() -> Status {
    const Status status = AwaitHostEvent(event);
    if (status.ok()) return OkStatus();
    return Error(ErrorKind::kCancelled,
                 "rank " + std::to_string(peer) + " gave up: " + InOneLine(status));
  });
}

template <typename Pull>
void PeerCollectives::Call(Queue& queue, PeerOperand mine, Pull pull) {
  Result<Operands> shown = board_->Show(rank(), std::move(mine));
  if (!shown.ok()) {
    queue.Fail(shown.status());
    return;
  }
  ++num_calls_;
  for (std::size_t peer = 0; peer < shown->size(); ++peer) {
    if (peer != static_cast<std::size_t>(rank())) WaitFor(queue, peer, (*shown)[peer].ready);
  }
  static_cast<HostQueue&>(queue).Enqueue(
      [operands = std::move(shown).value(), pull = std::move(pull)] { return pull(operands); });
  board_->Done(rank(), queue.Record());
}

void PeerCollectives::Gather(Queue& queue, const Tensor& shard, const Tensor& full,
                             const Event& ready) {
  CKPT_CHECK(shard.dtype == full.dtype && shard.num_elems() * size() == full.num_elems());
  const std::uint64_t size_bytes = shard.size_bytes();
  const PeerOperand mine = {
      .call = "AllGather", .size_bytes = size_bytes, .data = shard.bytes(), .ready = ready};
  // Each rank begins with the next one, so that not all read the same memory at once.
  Call(queue, mine, [full, size_bytes, first = rank()](const Operands& shown) {
    for (std::size_t i = 0; i < shown.size(); ++i) {
      const std::size_t peer = (static_cast<std::size_t>(first) + i) % shown.size();
      CopyUnlessSame(shown[peer].data, full.bytes() + peer * size_bytes, size_bytes);
    }
    return OkStatus();
  });
}

// A rank writes only its own part of its own `full`, which no other rank reads. So `shard` may lie
// there.
void PeerCollectives::ReduceScatterInto(Queue& queue, const Tensor& full, const Tensor& shard,
                                        GradWrite write) {
  CKPT_CHECK(shard.num_elems() * size() == full.num_elems());
  const std::uint64_t part_bytes = full.size_bytes() / static_cast<std::uint64_t>(size());
  const PeerOperand mine = {.call = "ReduceScatter",
                            .size_bytes = full.size_bytes(),
                            .data = full.bytes(),
                            .ready = queue.Record()};
  const std::uint64_t offset_bytes = static_cast<std::uint64_t>(rank()) * part_bytes;
  Call(queue, mine, [=, wire = full.dtype](const Operands& shown) {
    SumByTree(wire, DataOf(shown, offset_bytes), shard.dtype, write, shard.bytes(),
              shard.num_elems());
    return OkStatus();
  });
}

// Every rank reduces one slice in place; then each copies the slices of the others.
void PeerCollectives::AllReduce(Queue& queue, const Tensor& data, ReduceOp op) {
  CKPT_CHECK(op == ReduceOp::kSum || data.dtype != DType::kBfloat16);
  if (size() == 1) return;
  constexpr std::int64_t kSliceUnit = 64;  // elements, so that slices share no cache line
  const std::int64_t count = data.num_elems();
  const std::int64_t units = (count + kSliceUnit - 1) / kSliceUnit;
  const std::int64_t slice = (units + size() - 1) / size() * kSliceUnit;
  const auto begin_of = [slice, count](int rank) { return std::min(rank * slice, count); };
  const auto offset_of = [begin_of, element_bytes = ElementBytes(data.dtype)](int rank) {
    return static_cast<std::uint64_t>(begin_of(rank)) * element_bytes;
  };
  const auto mine = [&](std::string_view call) {
    return PeerOperand{.call = call,
                       .size_bytes = data.size_bytes(),
                       .data = data.bytes(),
                       .ready = queue.Record()};
  };
  const int own = rank();
  Call(queue, mine(op == ReduceOp::kSum ? "AllReduce" : "AllReduce max"),
       [=](const Operands& shown) {
         ReduceByTree(op, data.dtype, DataOf(shown, offset_of(own)), data.bytes() + offset_of(own),
                      begin_of(own + 1) - begin_of(own));
         return OkStatus();
       });
  // All have reduced their slices before any is overwritten.
  Call(queue, mine("AllReduce, second half"), [=](const Operands& shown) {
    const int num_ranks = static_cast<int>(shown.size());
    for (int i = 1; i < num_ranks; ++i) {
      const int peer = (own + i) % num_ranks;
      CopyUnlessSame(shown[static_cast<std::size_t>(peer)].data + offset_of(peer),
                     data.bytes() + offset_of(peer), offset_of(peer + 1) - offset_of(peer));
    }
    return OkStatus();
  });
  AwaitReaders(queue, num_calls_);
}

void PeerCollectives::AllToAll(Queue& queue, std::span<const RowTransfer> transfers,
                               const Tensor& send_rows, const Tensor& receive_rows) {
  CheckCounts(send_rows, receive_rows, size());
  PeerOperand mine = {.call = "AllToAll",
                      .size_bytes = transfers.size(),
                      .transfers = {transfers.begin(), transfers.end()},
                      .send_rows = send_rows,
                      .ready = queue.Record()};
  // A difference between ranks is told after the others have read: who fails frees its memory.
  const auto received = std::make_shared<Status>();
  Call(queue, std::move(mine), [own = rank(), receive_rows, received](const Operands& shown) {
    for (std::size_t t = 0; t < shown.front().transfers.size() && received->ok(); ++t) {
      std::vector<RowExchange> rows;
      for (std::size_t rank = 0; rank < shown.size(); ++rank) {
        const bool is_own = rank == static_cast<std::size_t>(own);
        rows.push_back(RowsOf(shown[rank].transfers[t], shown[rank].send_rows,
                              is_own ? receive_rows : Tensor()));
      }
      std::vector<const RowExchange*> all;
      for (const RowExchange& of_rank : rows) all.push_back(&of_rank);
      *received = ReceiveRows(own, rows[static_cast<std::size_t>(own)], all);
    }
    return OkStatus();
  });
  AwaitReaders(queue, num_calls_);
  static_cast<HostQueue&>(queue).Enqueue([received] { return *received; });
}

void PeerCollectives::AwaitReaders(Queue& queue, std::uint64_t calls) {
  if (calls == 0 || size() == 1) return;
  const Result<std::vector<Event>> events = board_->AwaitReaders(rank(), calls);
  if (!events.ok()) {
    queue.Fail(events.status());
    return;
  }
  for (std::size_t peer = 0; peer < events->size(); ++peer) WaitFor(queue, peer, (*events)[peer]);
}

void PeerCollectives::Leave() {
  for (const Event& event : board_->Leave(rank())) (void)AwaitHostEvent(event);
}

bool PeerCollectives::IsRegistered(const Tensor& tensor) const {
  return std::ranges::any_of(registered_, [&](MutableByteSpan memory) {
    return tensor.bytes() >= memory.data() &&
           tensor.bytes() + tensor.size_bytes() <= memory.data() + memory.size();
  });
}

}  // namespace

Result<std::unique_ptr<Collectives>> MakePeerCollectives(std::unique_ptr<HostGroup> group) {
  std::shared_ptr<PeerBoard> board;
  if (group->rank() == 0) board = std::make_shared<PeerBoard>(group->size());
  CKPT_ASSIGN_OR_RETURN(const std::shared_ptr<RankShared> shared, group->Share(std::move(board)));
  return std::unique_ptr<Collectives>(std::make_unique<PeerCollectives>(
      std::move(group), std::static_pointer_cast<PeerBoard>(shared)));
}

}  // namespace ckpt::trainer

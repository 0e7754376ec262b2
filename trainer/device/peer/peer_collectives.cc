#include "trainer/device/peer/peer_collectives.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/check.h"
#include "trainer/comm/agreement.h"
#include "trainer/comm/exchange_values.h"
#include "trainer/device/peer/internal/peer_board.h"
#include "trainer/device/rank_slices.h"

namespace ckpt::trainer {
namespace {

using Operands = std::vector<PeerOperand>;

std::vector<const std::byte*> DataOf(const Operands& shown, std::uint64_t offset_bytes) {
  std::vector<const std::byte*> data;
  for (const PeerOperand& operand : shown) data.push_back(operand.data + offset_bytes);
  return data;
}

class PeerCollectives final : public Collectives {
 public:
  PeerCollectives(std::unique_ptr<HostGroup> group, std::shared_ptr<PeerBoard> board,
                  std::unique_ptr<PeerReader> reader)
      : Collectives(std::move(group)), board_(std::move(board)), reader_(std::move(reader)) {}
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
  void ReduceScatterInto(Queue& queue, const Tensor& full, const Tensor& shard, GradWrite write,
                         std::span<const ShardRows> rows) override;
  [[nodiscard]] bool LeavesSquares() const override { return true; }
  void ScatterParts(Queue& queue, const Tensor& full, std::span<const Tensor> terms) override;
  Result<std::vector<Tensor>> Views(const Tensor& array) override;
  void AwaitWriters(Queue& queue, const Event& written) override;
  void AllReduce(Queue& queue, const Tensor& data, ReduceOp op) override;
  void AllToAll(Queue& queue, std::span<const RowTransfer> transfers, const RowCounts& send_rows,
                const RowCounts& receive_rows) override;

  void AwaitReaders(Queue& queue, std::uint64_t calls) override;
  void Register(const Buffer& memory) override {
    registered_.emplace_back(memory.data(), memory.size_bytes());
  }
  void Leave() override;

 private:
  // One call: shows the operand, lets the queue wait until those of all ranks are ready, and calls
  // `pull(operands of all ranks)`, which enqueues the reads.
  template <typename Pull>
  void Call(Queue& queue, PeerOperand mine, const Pull& pull);
  void Gather(Queue& queue, const Tensor& shard, const Tensor& full, const Event& ready);
  void WaitFor(Queue& queue, std::size_t peer, const Event& event) {
    if (event.state() != nullptr) reader_->WaitFor(queue, static_cast<int>(peer), event);
  }
  [[nodiscard]] bool IsRegistered(const Tensor& tensor) const;

  const std::shared_ptr<PeerBoard> board_;
  const std::unique_ptr<PeerReader> reader_;
  std::uint64_t num_calls_ = 0;
  std::vector<MutableByteSpan> registered_;
};

// Tells the board, at the end of its scope, when this rank will have read; also if enqueueing the
// reads throws: the others wait for it before they free their memory.
class Reading {
 public:
  Reading(PeerBoard& board, int rank, Queue& queue) : board_(board), rank_(rank), queue_(queue) {}
  ~Reading() { board_.Done(rank_, queue_.Record()); }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

 private:
  PeerBoard& board_;
  const int rank_;
  Queue& queue_;
};

template <typename Pull>
void PeerCollectives::Call(Queue& queue, PeerOperand mine, const Pull& pull) {
  if (size() == 1) return pull(Operands{std::move(mine)});
  const Result<Operands> shown = board_->Show(rank(), std::move(mine));
  if (!shown.ok()) {
    queue.Fail(shown.status());
    return;
  }
  ++num_calls_;
  const Reading reading(*board_, rank(), queue);
  for (std::size_t peer = 0; peer < shown->size(); ++peer) {
    if (peer != static_cast<std::size_t>(rank())) WaitFor(queue, peer, (*shown)[peer].ready);
  }
  pull(*shown);
}

void PeerCollectives::Gather(Queue& queue, const Tensor& shard, const Tensor& full,
                             const Event& ready) {
  CKPT_CHECK(shard.dtype == full.dtype && shard.num_elems() * size() == full.num_elems());
  const std::uint64_t size_bytes = shard.size_bytes();
  const PeerOperand mine = {
      .call = "AllGather", .size_bytes = size_bytes, .data = shard.bytes(), .ready = ready};
  // Each rank begins with the next one, so that not all read the same memory at once.
  Call(queue, mine, [&](const Operands& shown) {
    for (std::size_t i = 0; i < shown.size(); ++i) {
      const std::size_t peer = (static_cast<std::size_t>(rank()) + i) % shown.size();
      reader_->Copy(queue, shown[peer].data, full.bytes() + peer * size_bytes, size_bytes);
    }
  });
}

// A rank writes only its own part of its own `full`, which no other rank reads. So `shard` may lie
// there.
void PeerCollectives::ReduceScatterInto(Queue& queue, const Tensor& full, const Tensor& shard,
                                        GradWrite write, std::span<const ShardRows> rows) {
  CKPT_CHECK(shard.num_elems() * size() == full.num_elems());
  if (size() == 1 && rows.empty() && write == GradWrite::kStore && full.dtype == shard.dtype) {
    return reader_->Copy(queue, full.bytes(), shard.bytes(), full.size_bytes());
  }
  const std::uint64_t part_bytes = full.size_bytes() / static_cast<std::uint64_t>(size());
  const PeerOperand mine = {.call = "ReduceScatter",
                            .size_bytes = full.size_bytes(),
                            .data = full.bytes(),
                            .ready = queue.Record()};
  Call(queue, mine, [&](const Operands& shown) {
    reader_->Reduce(queue, {.wire = full.dtype,
                            .parts = DataOf(shown, static_cast<std::uint64_t>(rank()) * part_bytes),
                            .result = shard.dtype,
                            .write = write,
                            .out = shard.bytes(),
                            .count = shard.num_elems(),
                            .rows = {rows.begin(), rows.end()}});
  });
}

void PeerCollectives::ScatterParts(Queue& queue, const Tensor& full,
                                   std::span<const Tensor> terms) {
  CheckTerms(full, terms);
  const std::uint64_t part_bytes = full.size_bytes() / static_cast<std::uint64_t>(size());
  const std::uint64_t offset_bytes = static_cast<std::uint64_t>(rank()) * part_bytes;
  const PeerOperand mine = {.call = "ScatterParts",
                            .size_bytes = full.size_bytes(),
                            .data = full.bytes(),
                            .ready = queue.Record()};
  Call(queue, mine, [&](const Operands& shown) {
    for (std::size_t i = 0; i < shown.size(); ++i) {
      const std::size_t peer = (static_cast<std::size_t>(rank()) + i) % shown.size();
      reader_->Copy(queue, shown[peer].data + offset_bytes, terms[peer].bytes(), part_bytes);
    }
  });
}

Result<std::vector<Tensor>> PeerCollectives::Views(const Tensor& array) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<void*> all, ExchangeValues(host(), array.data));
  std::vector<Tensor> views(all.size(), array);
  for (std::size_t rank = 0; rank < all.size(); ++rank) views[rank].data = all[rank];
  return views;
}

void PeerCollectives::AwaitWriters(Queue& queue, const Event& written) {
  queue.Wait(written);
  Call(queue, {.call = "AwaitWriters", .ready = written}, [](const Operands&) {});
}

// Every rank reduces one slice in place; then each copies the slices of the others.
void PeerCollectives::AllReduce(Queue& queue, const Tensor& data, ReduceOp op) {
  CKPT_CHECK(op == ReduceOp::kSum || data.dtype != DType::kBfloat16);
  if (size() == 1) return;
  const RankSlices slices(data, size());
  const auto mine = [&](std::string_view call) {
    return PeerOperand{.call = call,
                       .size_bytes = data.size_bytes(),
                       .data = data.bytes(),
                       .ready = queue.Record()};
  };
  const int own = rank();
  Call(queue, mine(op == ReduceOp::kSum ? "AllReduce" : "AllReduce max"),
       [&](const Operands& shown) {
         reader_->Reduce(queue, {.op = op,
                                 .wire = data.dtype,
                                 .parts = DataOf(shown, slices.offset_bytes(own)),
                                 .result = data.dtype,
                                 .out = data.bytes() + slices.offset_bytes(own),
                                 .count = slices.num_elems(own)});
       });
  // All have reduced their slices before any is overwritten.
  Call(queue, mine("AllReduce, second half"), [&](const Operands& shown) {
    for (int i = 1; i < size(); ++i) {
      const int peer = (own + i) % size();
      const std::uint64_t offset_bytes = slices.offset_bytes(peer);
      reader_->Copy(queue, shown[static_cast<std::size_t>(peer)].data + offset_bytes,
                    data.bytes() + offset_bytes, slices.size_bytes(peer));
    }
  });
  AwaitReaders(queue, num_calls_);
}

void PeerCollectives::AllToAll(Queue& queue, std::span<const RowTransfer> transfers,
                               const RowCounts& send_rows, const RowCounts& receive_rows) {
  for (const Tensor& counts : {send_rows.on_device(), receive_rows.on_device()}) {
    CKPT_CHECK(counts.dtype == DType::kInt64 && counts.num_elems() == size());
  }
  const PeerOperand mine = {.call = "AllToAll",
                            .size_bytes = transfers.size(),
                            .transfers = {transfers.begin(), transfers.end()},
                            .send_rows = send_rows.on_device(),
                            .ready = queue.Record()};
  Call(queue, mine, [&](const Operands& shown) {
    for (std::size_t t = 0; t < transfers.size(); ++t) {
      std::vector<PeerRows> sent;
      for (const PeerOperand& of_rank : shown) {
        sent.push_back({.rows = of_rank.transfers[t].send, .counts = of_rank.send_rows});
      }
      reader_->ReceiveRows(queue, rank(), std::move(sent),
                           {.rows = transfers[t].receive, .counts = receive_rows.on_device()});
    }
  });
  AwaitReaders(queue, num_calls_);
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
  if (size() == 1) return;
  for (const Event& event : board_->Leave(rank())) {
    if (event.state() != nullptr) reader_->Await(event);
  }
}

bool PeerCollectives::IsRegistered(const Tensor& tensor) const {
  return std::ranges::any_of(registered_, [&](MutableByteSpan memory) {
    return tensor.bytes() >= memory.data() &&
           tensor.bytes() + tensor.size_bytes() <= memory.data() + memory.size();
  });
}

}  // namespace

Status GaveUp(int peer, const Status& why) {
  return Error(ErrorKind::kCancelled,
               "rank " + std::to_string(peer) + " gave up: " + InOneLine(why));
}

Result<std::unique_ptr<Collectives>> MakePeerCollectives(std::unique_ptr<HostGroup> group,
                                                         std::unique_ptr<PeerReader> reader) {
  std::shared_ptr<RankShared> board;
  if (group->rank() == 0) board = std::make_shared<PeerBoard>(group->size());
  if (group->size() > 1) {
    CKPT_ASSIGN_OR_RETURN(board, group->Share(std::move(board)));
  }
  return std::unique_ptr<Collectives>(std::make_unique<PeerCollectives>(
      std::move(group), std::static_pointer_cast<PeerBoard>(board), std::move(reader)));
}

}  // namespace ckpt::trainer

#include "trainer/device/cpu/internal/host_collectives.h"

#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "trainer/device/cpu/host_device.h"
#include "trainer/device/cpu/internal/reduce_tree.h"

namespace ckpt::trainer {
namespace {

// Smaller arrays are gathered whole and summed by every rank: one call instead of two.
constexpr std::uint64_t kSmallReduceBytes = 4096;

ByteSpan BytesOf(const Tensor& tensor) { return {tensor.bytes(), tensor.size_bytes()}; }
MutableByteSpan MutableBytesOf(const Tensor& tensor) {
  return {tensor.bytes(), tensor.size_bytes()};
}

std::uint64_t RowBytes(const Tensor& tensor) {
  CKPT_CHECK(tensor.ndim > 0);
  std::uint64_t bytes = ElementBytes(tensor.dtype);
  for (int i = 1; i < tensor.ndim; ++i) bytes *= static_cast<std::uint64_t>(tensor.dim(i));
  return bytes;
}

std::int64_t Sum(std::span<const std::int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

bool IsSummable(DType dtype) {
  return dtype == DType::kBfloat16 || dtype == DType::kFloat32 || dtype == DType::kFloat64 ||
         dtype == DType::kInt32 || dtype == DType::kInt64;
}

// The blocking calls, as a queue runs them.

Status ReduceParts(HostGroup& group, ReduceOp op, const Tensor& full, const Tensor& own) {
  const DType dtype = full.dtype;
  return group.ExchangeParts(BytesOf(full), [&](std::span<const std::byte* const> parts,
                                                std::uint64_t begin, std::uint64_t size_bytes) {
    ReduceByTree(op, dtype, parts, own.bytes() + begin,
                 static_cast<std::int64_t>(size_bytes / ElementBytes(dtype)));
  });
}

Status SumParts(HostGroup& group, const Tensor& full, const Tensor& shard, GradWrite write) {
  const std::uint64_t wire_bytes = ElementBytes(full.dtype);
  return group.ExchangeParts(BytesOf(full), [&](std::span<const std::byte* const> parts,
                                                std::uint64_t begin, std::uint64_t size_bytes) {
    SumByTree(full.dtype, parts, shard.dtype, write,
              shard.bytes() + begin / wire_bytes * ElementBytes(shard.dtype),
              static_cast<std::int64_t>(size_bytes / wire_bytes));
  });
}

Status ReduceSmall(HostGroup& group, ReduceOp op, const Tensor& data) {
  if (data.num_elems() == 0) return OkStatus();
  std::vector<std::byte> all(data.size_bytes() * static_cast<std::size_t>(group.size()));
  CKPT_RETURN_IF_ERROR(group.Exchange(BytesOf(data), all));
  std::vector<const std::byte*> parts;
  for (std::size_t begin = 0; begin < all.size(); begin += data.size_bytes()) {
    parts.push_back(all.data() + begin);
  }
  ReduceByTree(op, data.dtype, parts, data.bytes(), data.num_elems());
  return OkStatus();
}

// Every rank reduces an equal part in place and gathers the others'; the remainder follows.
Status ReduceAll(HostGroup& group, ReduceOp op, const Tensor& data) {
  if (data.size_bytes() <= kSmallReduceBytes) return ReduceSmall(group, op, data);
  const std::int64_t part = data.num_elems() / group.size();
  const Tensor flat = data.Reshape({data.num_elems()});
  const Tensor even = flat.Rows(0, part * group.size());
  const Tensor own = even.Rows(part * group.rank(), part);
  CKPT_RETURN_IF_ERROR(ReduceParts(group, op, even, own));
  CKPT_RETURN_IF_ERROR(group.Exchange(BytesOf(own), MutableBytesOf(even)));
  return ReduceSmall(group, op, flat.Rows(even.num_elems(), flat.num_elems() - even.num_elems()));
}

class HostCollectives final : public Collectives {
 public:
  HostCollectives(std::unique_ptr<HostGroup> group, Device& device)
      : Collectives(std::move(group)), counts_(device, size()) {}

  void AllGather(Queue& queue, const Tensor& shard, const Tensor& full) override {
    CKPT_CHECK(shard.dtype == full.dtype && shard.num_elems() * size() == full.num_elems());
    Enqueue(queue,
            [this, shard, full] { return host().Exchange(BytesOf(shard), MutableBytesOf(full)); });
  }

  void ReduceScatterInto(Queue& queue, const Tensor& full, const Tensor& shard,
                         GradWrite write, std::span<const ShardRows> rows) override {
    CKPT_CHECK(shard.num_elems() * size() == full.num_elems());
    CKPT_CHECK(rows.empty());
    Enqueue(queue, [this, full, shard, write] { return SumParts(host(), full, shard, write); });
  }

  void ScatterParts(Queue& queue, const Tensor& full, std::span<const Tensor> terms) override {
    CheckTerms(full, terms);
    Enqueue(queue, [this, full, to = std::vector<Tensor>(terms.begin(), terms.end())] {
      return host().ExchangeParts(
          BytesOf(full), [&to](std::span<const std::byte* const> pieces, std::uint64_t begin,
                               std::uint64_t size_bytes) {
            for (std::size_t rank = 0; rank < pieces.size(); ++rank) {
              std::byte* const term = to[rank].bytes() + begin;
              if (term != pieces[rank]) std::memcpy(term, pieces[rank], size_bytes);
            }
          });
    });
  }

  void AllReduce(Queue& queue, const Tensor& data, ReduceOp op) override {
    CKPT_CHECK(IsSummable(data.dtype));
    CKPT_CHECK(op == ReduceOp::kSum || data.dtype != DType::kBfloat16);
    if (size() == 1) return;
    Enqueue(queue, [this, data, op] { return ReduceAll(host(), op, data); });
  }

  // The queue could read the counts when it gets to the call. They are read on the host as NCCL's
  // are, so that tests on the CPU find counts that change too early.
  RowCounts ReadCounts(Queue& queue, const Tensor& counts) override {
    return counts_.Read(queue, counts);
  }
  void AllToAll(Queue& queue, std::span<const RowTransfer> transfers, const RowCounts& send_rows,
                const RowCounts& receive_rows) override {
    const auto sent = send_rows.OnHost();
    const auto received = receive_rows.OnHost();
    if (!sent.ok() || !received.ok()) {
      return queue.Fail(sent.ok() ? received.status() : sent.status());
    }
    std::vector<RowExchange> exchanges;
    for (const RowTransfer& transfer : transfers) {
      exchanges.push_back(RowsOf(transfer, *sent, *received));
    }
    Enqueue(queue, [this, exchanges = std::move(exchanges)]() -> Status {
      for (const RowExchange& rows : exchanges) CKPT_RETURN_IF_ERROR(host().ExchangeRows(rows));
      return OkStatus();
    });
  }

 private:
  template <typename Work>
  static void Enqueue(Queue& queue, Work&& work) {
    static_cast<HostQueue&>(queue).Enqueue(std::forward<Work>(work));
  }

  CountsReader counts_;
};

}  // namespace

RowExchange RowsOf(const RowTransfer& transfer, std::span<const std::int64_t> send_rows,
                   std::span<const std::int64_t> receive_rows) {
  RowExchange rows{.send = transfer.send.bytes(),
                   .receive = transfer.receive.bytes(),
                   .row_bytes = RowBytes(transfer.send),
                   .send_rows = {send_rows.begin(), send_rows.end()},
                   .receive_rows = {receive_rows.begin(), receive_rows.end()}};
  CKPT_CHECK(rows.row_bytes == RowBytes(transfer.receive));
  CKPT_CHECK(Sum(rows.send_rows) <= transfer.send.dim(0));
  CKPT_CHECK(Sum(rows.receive_rows) <= transfer.receive.dim(0));
  return rows;
}

std::unique_ptr<Collectives> MakeHostCollectives(std::unique_ptr<HostGroup> group, Device& device) {
  return std::make_unique<HostCollectives>(std::move(group), device);
}

}  // namespace ckpt::trainer

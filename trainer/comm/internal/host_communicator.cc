#include "trainer/comm/internal/host_communicator.h"

#include <cstring>
#include <numeric>
#include <utility>

#include "core/base/check.h"
#include "trainer/device/host_device.h"

namespace ckpt::trainer {
namespace {

template <typename Work>
void Enqueue(Queue& queue, Work&& work) {
  static_cast<HostQueue&>(queue).Enqueue(std::forward<Work>(work));
}

// Operands are either the same memory or do not overlap.
void CopyUnlessSame(const std::byte* from, std::byte* to, std::uint64_t size_bytes) {
  if (from != to && size_bytes != 0) std::memcpy(to, from, size_bytes);
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

}  // namespace

void HostCommunicator::AllGather(Queue& queue, const Tensor& shard, const Tensor& full) {
  CKPT_CHECK(shard.dtype == full.dtype && shard.num_elems() * size() == full.num_elems());
  Enqueue(queue, [this, shard, full] {
    if (size() > 1) return GatherNow(shard.bytes(), full.bytes(), shard.size_bytes());
    CopyUnlessSame(shard.bytes(), full.bytes(), full.size_bytes());
    return OkStatus();
  });
}

void HostCommunicator::ReduceScatter(Queue& queue, const Tensor& full, const Tensor& shard) {
  CKPT_CHECK(shard.dtype == full.dtype && shard.num_elems() * size() == full.num_elems());
  CKPT_CHECK(IsSummable(full.dtype));
  Enqueue(queue, [this, shard, full] {
    if (size() > 1) {
      return ReduceScatterNow(full.dtype, full.bytes(), shard.bytes(), shard.num_elems());
    }
    CopyUnlessSame(full.bytes(), shard.bytes(), full.size_bytes());
    return OkStatus();
  });
}

void HostCommunicator::AllReduce(Queue& queue, const Tensor& data, ReduceOp op) {
  CKPT_CHECK(IsSummable(data.dtype));
  CKPT_CHECK(op == ReduceOp::kSum || data.dtype != DType::kBfloat16);
  if (size() == 1) return;
  Enqueue(queue, [this, data, op] {
    return AllReduceNow(op, data.dtype, data.bytes(), data.num_elems());
  });
}

void HostCommunicator::AllToAll(Queue& queue, const Tensor& send,
                                std::span<const std::int64_t> send_rows, const Tensor& receive,
                                std::span<const std::int64_t> receive_rows) {
  const auto num_ranks = static_cast<std::size_t>(size());
  CKPT_CHECK(send_rows.size() == num_ranks && receive_rows.size() == num_ranks);
  CKPT_CHECK(send.dtype == receive.dtype && RowBytes(send) == RowBytes(receive));
  CKPT_CHECK(Sum(send_rows) <= send.dim(0) && Sum(receive_rows) <= receive.dim(0));
  CKPT_CHECK(num_ranks > 1 || send_rows[0] == receive_rows[0]);
  RowExchange rows{.send = send.bytes(),
                   .receive = receive.bytes(),
                   .row_bytes = RowBytes(send),
                   .send_rows = {send_rows.begin(), send_rows.end()},
                   .receive_rows = {receive_rows.begin(), receive_rows.end()}};
  Enqueue(queue, [this, rows = std::move(rows)] {
    if (size() > 1) return AllToAllNow(rows);
    CopyUnlessSame(rows.send, rows.receive,
                   static_cast<std::uint64_t>(rows.send_rows[0]) * rows.row_bytes);
    return OkStatus();
  });
}

Status HostCommunicator::Exchange(ByteSpan mine, MutableByteSpan all) {
  CKPT_CHECK(all.size() == mine.size() * static_cast<std::size_t>(size()));
  if (size() > 1) return GatherNow(mine.data(), all.data(), mine.size());
  CopyUnlessSame(mine.data(), all.data(), mine.size());
  return OkStatus();
}

Status HostCommunicator::Barrier() { return size() > 1 ? BarrierNow() : OkStatus(); }

}  // namespace ckpt::trainer

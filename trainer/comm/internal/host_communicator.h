// What all communicators over host memory share: checks, groups of one rank, and enqueueing.
#ifndef CKPT_TRAINER_COMM_INTERNAL_HOST_COMMUNICATOR_H_
#define CKPT_TRAINER_COMM_INTERNAL_HOST_COMMUNICATOR_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trainer/comm/communicator.h"

namespace ckpt::trainer {

// One rank's side of an AllToAll. The rows of each peer follow each other in order of rank.
struct RowExchange {
  const std::byte* send = nullptr;
  std::byte* receive = nullptr;
  std::uint64_t row_bytes = 0;
  std::vector<std::int64_t> send_rows;  // to each rank
  std::vector<std::int64_t> receive_rows;
};

// A backend implements the blocking calls below. They run on the queue's thread, and only in groups
// of several ranks: a group of one rank copies and does not wait.
class HostCommunicator : public Communicator {
 public:
  void AllGather(Queue& queue, const Tensor& shard, const Tensor& full) final;
  void ReduceScatter(Queue& queue, const Tensor& full, const Tensor& shard) final;
  void AllReduce(Queue& queue, const Tensor& data, ReduceOp op) final;
  void AllToAll(Queue& queue, const Tensor& send, std::span<const std::int64_t> send_rows,
                const Tensor& receive, std::span<const std::int64_t> receive_rows) final;
  Status Exchange(ByteSpan mine, MutableByteSpan all) final;
  Status Barrier() final;

 protected:
  // `mine`, `size_bytes` long, may be this rank's part of `all`.
  virtual Status GatherNow(const std::byte* mine, std::byte* all, std::uint64_t size_bytes) = 0;
  // `count` elements per rank; `shard` may be this rank's part of `full`.
  virtual Status ReduceScatterNow(DType dtype, std::byte* full, std::byte* shard,
                                  std::int64_t count) = 0;
  virtual Status AllReduceNow(ReduceOp op, DType dtype, std::byte* data, std::int64_t count) = 0;
  virtual Status AllToAllNow(const RowExchange& rows) = 0;
  virtual Status BarrierNow() = 0;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_COMM_INTERNAL_HOST_COMMUNICATOR_H_

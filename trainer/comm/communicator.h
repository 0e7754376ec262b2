// Communicator: collectives of one group of ranks, whatever carries them.
#ifndef CKPT_TRAINER_COMM_COMMUNICATOR_H_
#define CKPT_TRAINER_COMM_COMMUNICATOR_H_

#include <cstdint>
#include <memory>
#include <span>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "trainer/device/queue.h"
#include "trainer/device/tensor.h"

namespace ckpt::trainer {

enum class ReduceOp : std::uint8_t { kSum, kMax };

// All ranks of the group make the same calls in the same order, each on a queue of its own. Calls
// enqueue and return; `Queue::Synchronize` reports what went wrong: kCancelled if a rank is gone or
// gave up, kInternal if the backend sees that ranks make different calls. Operands are contiguous
// and stay valid until the queue got there. In a group of one rank, calls copy what is not in place
// and wait for nobody.
//
// Sums are made in one order on every backend but NCCL: a binary tree over the group's ranks in
// which neighbours meet first, ((0+1)+(2+3))+…, and the left part of n ranks is the largest power
// of two below n. They are made in the operands' dtype (bfloat16: in float32, rounded once). So the
// sum over 2·2^k ranks equals the sum of the sums of its halves, bit for bit where nothing is
// rounded in between. int64 wraps nowhere it is used (fixed-point gradients).
//
// Thread-safety: one communicator is used by one queue at a time, or by a host call; different
// communicators of one rank may run at once. Queues are synchronised before a communicator that
// they use is destroyed.
class Communicator {
 public:
  virtual ~Communicator() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  // full[r·n … (r+1)·n) = shard of rank r, n elements each. `shard` may be the own part of `full`.
  virtual void AllGather(Queue& queue, const Tensor& shard, const Tensor& full) = 0;
  // shard = Σ over ranks of their `full`'s part for this rank. `shard` may be the own part of
  // `full`; the other parts of `full` are left undefined.
  virtual void ReduceScatter(Queue& queue, const Tensor& full, const Tensor& shard) = 0;
  // In place. kSum: bfloat16, float32, float64, int32, int64, as ReduceScatter. kMax: these less
  // bfloat16; a NaN wins.
  virtual void AllReduce(Queue& queue, const Tensor& data, ReduceOp op) = 0;
  // Rows [Σ send_rows[<r], +send_rows[r]) of `send` go to rank r, behind one another in order of
  // source in `receive`. `receive_rows[r]` is what rank r sends here. Counts are read before the
  // call returns.
  virtual void AllToAll(Queue& queue, const Tensor& send, std::span<const std::int64_t> send_rows,
                        const Tensor& receive, std::span<const std::int64_t> receive_rows) = 0;

  // Host calls, blocking. `all` receives size() times `mine.size()` bytes in order of rank.
  // Errors: kCancelled (a rank is gone or gave up).
  virtual Status Exchange(ByteSpan mine, MutableByteSpan all) = 0;
  virtual Status Barrier() = 0;

  // The ranks that give the same `color`, ordered by (`key`, rank). Every rank calls it.
  // Errors: as Exchange.
  virtual Result<std::unique_ptr<Communicator>> Split(int color, int key) = 0;

  // Gives up: every waiting and later call of any rank of the whole world ends with kCancelled that
  // carries `why`. Where ranks are processes, which cannot be told, they all end.
  virtual void Abort(const Status& why) = 0;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_COMM_COMMUNICATOR_H_

// Communicator: the collectives of one group of ranks, on any transport.
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

// All ranks of the group make the same calls in the same order, each on its own queue. A call
// enqueues its work and returns. `Queue::Synchronize` reports what went wrong: kCancelled if a rank
// is gone or gave up, kInternal if the backend sees that ranks make different calls. Operands are
// contiguous and stay valid until the queue has run the call. In a group of one rank, a call copies
// what is not in place and does not wait.
//
// Every backend except NCCL adds in one fixed order: a binary tree over the group's ranks in which
// neighbours meet first, ((0+1)+(2+3))+…; of n ranks, the left part is the largest power of two
// below n. Sums have the operands' dtype (bfloat16 is added in float32 and rounded once). So the
// sum over 2·2^k ranks equals the sum of the sums of its halves, bit for bit where nothing is
// rounded in between. int64 sums do not wrap where the trainer uses them (fixed-point gradients).
//
// Thread-safety: one queue or one host call uses a communicator at a time; different communicators
// of one rank may run at once. Synchronise the queues that use a communicator before destroying it.
class Communicator {
 public:
  virtual ~Communicator() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  // full[r·n … (r+1)·n) = the shard of rank r, n elements each. `shard` may be this rank's part of
  // `full`.
  virtual void AllGather(Queue& queue, const Tensor& shard, const Tensor& full) = 0;
  // shard = Σ over the ranks of this rank's part of their `full`. `shard` may be this rank's part
  // of `full`; the other parts of `full` become undefined.
  virtual void ReduceScatter(Queue& queue, const Tensor& full, const Tensor& shard) = 0;
  // In place. kSum takes bfloat16, float32, float64, int32 and int64, and adds as ReduceScatter
  // does. kMax takes the same except bfloat16; a NaN wins.
  virtual void AllReduce(Queue& queue, const Tensor& data, ReduceOp op) = 0;
  // Rows [Σ send_rows[<r], +send_rows[r]) of `send` go to rank r. `receive` gets the rows in order
  // of the rank that sent them, `receive_rows[r]` of them from rank r. The counts are read before
  // the call returns.
  virtual void AllToAll(Queue& queue, const Tensor& send, std::span<const std::int64_t> send_rows,
                        const Tensor& receive, std::span<const std::int64_t> receive_rows) = 0;

  // Blocking calls of the host. `all` receives size() times `mine.size()` bytes in order of rank.
  // Errors: kCancelled (a rank is gone or gave up).
  virtual Status Exchange(ByteSpan mine, MutableByteSpan all) = 0;
  virtual Status Barrier() = 0;

  // The group of the ranks that give the same `color`, ordered by (`key`, rank). Every rank calls
  // it.
  // Errors: as Exchange.
  virtual Result<std::unique_ptr<Communicator>> Split(int color, int key) = 0;

  // Gives up: every waiting and later call of any rank of the whole world ends with a kCancelled
  // that carries `why`. Where ranks are processes, there is no way to tell the others, so all
  // processes end.
  virtual void Abort(const Status& why) = 0;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_COMM_COMMUNICATOR_H_

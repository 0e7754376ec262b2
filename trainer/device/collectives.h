// Collectives: what the ranks of a group compute together, on queues of a device.
#ifndef CKPT_TRAINER_DEVICE_COLLECTIVES_H_
#define CKPT_TRAINER_DEVICE_COLLECTIVES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/base/result.h"
#include "trainer/comm/host_group.h"
#include "trainer/device/device.h"
#include "trainer/device/grad_write.h"
#include "trainer/device/queue.h"
#include "trainer/device/row_counts.h"
#include "trainer/device/tensor.h"

namespace ckpt::trainer {

enum class ReduceOp : std::uint8_t { kSum, kMax };

// Tensors [rows, …] of one AllToAll: their rows have the same size in both.
struct RowTransfer {
  Tensor send;
  Tensor receive;
};

// Rows of a shard that follow each other, and where a reduction leaves the squares of each, for the
// norm of all gradients.
struct ShardRows {
  std::int64_t begin = 0;    // the element of the shard where the first row starts
  std::int64_t columns = 0;  // elements of a row
  Tensor squares;            // float64 [rows]: Σ x² of each row

  [[nodiscard]] std::int64_t rows() const { return squares.num_elems(); }
  [[nodiscard]] std::int64_t end() const { return begin + rows() * columns; }
};

// Made by Device::MakeCollectives, for queues and memory of that device.
//
// All ranks of the group make the same calls in the same order, each on its own queue. A call
// enqueues its work and returns. `Queue::Synchronize` reports what went wrong: kCancelled if a rank
// is gone or gave up, kInternal if the device sees that ranks make different calls. Operands are
// contiguous and stay valid until the queue has run the call. In a group of one rank, a call copies
// what is not in place and does not wait.
//
// Sums are added in one fixed order: a binary tree over the group's ranks in which neighbours meet
// first, ((0+1)+(2+3))+…; of n ranks, the left part is the largest power of two below n. bfloat16
// is added in float32, and a result is rounded once. So the sum over 2·2^k ranks
// equals the sum of the sums of its halves, bit for bit where nothing is rounded in between. int64
// sums do not wrap where the trainer uses them (fixed-point gradients).
//
// Where ranks share a machine, a rank may read the operands of the others directly. By default no
// caller notices: an operand may be overwritten when the queue has run the call. Weights and
// gradients say more (GatherShards, ReduceScatterInto, ScatterParts, AwaitReaders), so that a rank
// need not wait until the others have read; and kernels may write into the others' memory (Views,
// AwaitWriters). Then a call may wait until the threads of the other ranks have made it too,
// because an event may be awaited from another rank's queue only after it was recorded. So all
// ranks make the calls of *all* their groups in one order.
//
// Thread-safety: one queue or one host call uses a group at a time; different groups of one rank
// may be used at once. Synchronise the queues that use it before destroying it, and call Leave
// before memory is freed that calls have used.
class Collectives {
 public:
  virtual ~Collectives() = default;

  [[nodiscard]] int rank() const { return host_->rank(); }
  [[nodiscard]] int size() const { return host_->size(); }
  // The same ranks on the host.
  [[nodiscard]] HostGroup& host() const { return *host_; }

  // full[r·n … (r+1)·n) = the shard of rank r, n elements each. `shard` may be this rank's part of
  // `full`.
  virtual void AllGather(Queue& queue, const Tensor& shard, const Tensor& full) = 0;
  // The same of a shard that is not written between `ready`, an event of this rank, and
  // AwaitReaders. So the other ranks need not wait until this rank's queue gets to the call. The
  // call waits for `ready`. The memory of `shard` is registered.
  virtual void GatherShards(Queue& queue, const Tensor& shard, const Tensor& full,
                            const Event& ready) {
    queue.Wait(ready);
    AllGather(queue, shard, full);
  }
  // shard = or += Σ over the ranks of this rank's part of their `full`. The dtypes may differ
  // (gradients are sent in `full`'s and kept in `shard`'s): float32, float64 and bfloat16 in any
  // combination, or both int64 or int32. bfloat16 and float32 are summed in float32, float64 in
  // float64. A result is rounded once, to the dtype of `shard`: the sum itself is not rounded to
  // `full`'s dtype before it is stored or added. The other parts of `full` become undefined, and
  // may be written only after AwaitReaders. With kStore and equal dtypes, `shard` may be this
  // rank's part of `full`.
  //
  // Also leaves the squares of `rows` of the result, each summed in one fixed order, so that nobody
  // reads them again for a norm. REQUIRES: no rows unless LeavesSquares(); they are in order of
  // `begin`, and do not overlap; they have elements; the result is float32 or bfloat16.
  virtual void ReduceScatterInto(Queue& queue, const Tensor& full, const Tensor& shard,
                                 GradWrite write, std::span<const ShardRows> rows) = 0;
  [[nodiscard]] virtual bool LeavesSquares() const { return false; }
  // terms[r] = this rank's part of the `full` of rank r: the terms of the sum that
  // ReduceScatterInto stores, for a caller that adds them as it reads them. This rank's own term
  // may be its part of `full`, where nothing is copied. The other parts of `full` may be written
  // only after AwaitReaders.
  virtual void ScatterParts(Queue& queue, const Tensor& full, std::span<const Tensor> terms) = 0;
  // ReduceScatterInto where all that is wanted is a sum of the operands' dtype; `full` may be
  // overwritten when the queue has run the call.
  void ReduceScatter(Queue& queue, const Tensor& full, const Tensor& shard) {
    ReduceScatterInto(queue, full, shard, GradWrite::kStore, {});
    AwaitReaders(queue, num_calls());
  }
  // `array` of every rank, in order of rank, for kernels that write into the others' memory. None
  // where they cannot, as where ranks are processes or have NCCL. Errors: kCancelled.
  virtual Result<std::vector<Tensor>> Views(const Tensor& /*array*/) {
    return std::vector<Tensor>();
  }
  // Work that is enqueued on `queue` from now on starts after `written` of every rank: what the
  // others wrote into this rank's memory before is there.
  virtual void AwaitWriters(Queue& queue, const Event& written) { queue.Wait(written); }
  // In place. kSum takes bfloat16, float32, float64, int32 and int64, and adds as ReduceScatter
  // does. kMax takes the same except bfloat16; a NaN wins.
  virtual void AllReduce(Queue& queue, const Tensor& data, ReduceOp op) = 0;
  // Counts of rows for each rank, int64 [size()], for any number of AllToAlls: those that `counts`
  // holds when `queue` has run what was enqueued so far. It does not change until they have run.
  //
  // Kernels that read peers' memory find counts on the device. Where all ranks meet (NCCL, MPI,
  // threads by default) the host must know them. Then they are copied to it as soon as they are
  // computed, beside what is enqueued next, and the first AllToAll waits for that copy alone.
  virtual RowCounts ReadCounts(Queue& /*queue*/, const Tensor& counts) { return RowCounts(counts); }
  // Rows [Σ send_rows[<r], +send_rows[r]) of each `send` go to rank r. `receive` gets the rows in
  // order of the rank that sent them, `receive_rows[r]` of them from rank r. Rows after the last
  // are neither read nor written. The counts are those of ReadCounts.
  virtual void AllToAll(Queue& queue, std::span<const RowTransfer> transfers,
                        const RowCounts& send_rows, const RowCounts& receive_rows) = 0;

  // How many calls this rank has made. It names a point for AwaitReaders.
  [[nodiscard]] virtual std::uint64_t num_calls() const { return 0; }
  // Work that is enqueued on `queue` from now on starts after the other ranks have read the
  // operands of this rank's first `calls` calls.
  virtual void AwaitReaders(Queue& /*queue*/, std::uint64_t /*calls*/) {}
  // Calls will use this memory until Leave. Every rank registers the same memory in the same order.
  virtual void Register(const Buffer& /*memory*/) {}
  // Waits until no other rank reads this rank's memory any more. If a rank gave up, it does not
  // wait for what that rank did not begin. No call may follow.
  virtual void Leave() {}

 protected:
  explicit Collectives(std::unique_ptr<HostGroup> host) : host_(std::move(host)) {}

  // Checks what ScatterParts requires.
  void CheckTerms(const Tensor& full, std::span<const Tensor> terms) const {
    CKPT_CHECK(terms.size() == static_cast<std::size_t>(size()));
    for (const Tensor& term : terms) {
      CKPT_CHECK(term.dtype == full.dtype && term.num_elems() * size() == full.num_elems());
    }
  }

 private:
  const std::unique_ptr<HostGroup> host_;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DEVICE_COLLECTIVES_H_

// PeerReader: what a device does, on its own queue, with the memory of other ranks of its machine.
#ifndef CKPT_TRAINER_DEVICE_PEER_PEER_READER_H_
#define CKPT_TRAINER_DEVICE_PEER_PEER_READER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/tensor/dtype.h"
#include "trainer/device/collectives.h"
#include "trainer/device/grad_write.h"
#include "trainer/device/queue.h"
#include "trainer/device/tensor.h"

namespace ckpt::trainer {

// Elements of every rank, in order of rank, that become one array.
struct PeerReduction {
  ReduceOp op = ReduceOp::kSum;
  DType wire = DType::kFloat32;
  std::vector<const std::byte*> parts;  // `count` elements of `wire` each
  DType result = DType::kFloat32;       // as ReduceScatterInto allows; `wire` for kMax
  GradWrite write = GradWrite::kStore;  // kStore for kMax
  std::byte* out = nullptr;             // may be one of the parts
  std::int64_t count = 0;
  std::vector<ShardRows> rows = {};  // of `out`, as ReduceScatterInto says
};

// Rows [·, …] and how many of them each rank sends or gets, int64 [ranks] in device memory.
struct PeerRows {
  Tensor rows;
  Tensor counts;
};

// Calls but Await enqueue on a queue of the device. Thread-safety: the rank's thread.
class PeerReader {
 public:
  virtual ~PeerReader() = default;

  // Work that is enqueued from now on comes after `event`, a recorded one of another rank. If that
  // rank's queue failed before it, `queue` fails with GaveUp.
  virtual void WaitFor(Queue& queue, int peer, const Event& event) = 0;
  // Blocks until `event`, of any rank, is reached, failed or not.
  virtual void Await(const Event& event) = 0;

  // Nothing if `from` is `to`.
  virtual void Copy(Queue& queue, const std::byte* from, std::byte* to,
                    std::uint64_t size_bytes) = 0;
  // Adds in the order that Collectives documents.
  virtual void Reduce(Queue& queue, const PeerReduction& reduction) = 0;
  // `sent` of every rank → `received` of `rank`, as AllToAll says.
  virtual void ReceiveRows(Queue& queue, int rank, std::vector<PeerRows> sent,
                           const PeerRows& received) = 0;
};

// The error of a queue that needs what a failed queue of rank `peer` did not write.
[[nodiscard]] Status GaveUp(int peer, const Status& why);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DEVICE_PEER_PEER_READER_H_

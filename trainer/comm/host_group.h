// HostGroup: ranks that exchange bytes of host memory, over threads or over MPI.
#ifndef CKPT_TRAINER_COMM_HOST_GROUP_H_
#define CKPT_TRAINER_COMM_HOST_GROUP_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "trainer/comm/call_track.h"
#include "trainer/comm/row_exchange.h"

namespace ckpt::trainer {

// An object that all ranks of a group hold. Thread-safety: any thread.
class RankShared {
 public:
  virtual ~RankShared() = default;
  // A rank gave up or is gone. What waits for other ranks must end with `why` of the first call.
  virtual void Cancel(const Status& why) = 0;
};

// It knows no device. A device makes Collectives of a group (Device::MakeCollectives): those of the
// CPU run the calls below on their queues, others only find each other through the group.
//
// All ranks of a group make the same calls in the same order, with operands of the same size. Every
// call blocks. Errors of each: kCancelled (a rank is gone or gave up), kInternal (ranks make
// different calls, where that is noticed).
//
// Thread-safety: one call at a time; different groups of one rank may be used at once.
class HostGroup {
 public:
  virtual ~HostGroup() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  // `all` receives size() times `mine.size()` bytes in order of rank. `mine` may be this rank's
  // part of `all`.
  virtual Status Exchange(ByteSpan mine, MutableByteSpan all) = 0;
  // `full` has size() equal parts, one for each rank. Calls `use` with this rank's part of every
  // rank's `full`, in order of rank, piece by piece: `parts` are bytes [begin, begin + size_bytes)
  // of the part. Pieces but the last are multiples of 64 bytes. `use` may overwrite that piece of
  // this rank's part of its own `full`.
  using UseParts = std::function<void(std::span<const std::byte* const> parts, std::uint64_t begin,
                                      std::uint64_t size_bytes)>;
  virtual Status ExchangeParts(ByteSpan full, const UseParts& use) = 0;
  // Sends each rank its rows. Further errors: kInternal (a rank sends a different number of rows
  // than is received, where that is noticed).
  virtual Status ExchangeRows(const RowExchange& rows) = 0;
  virtual Status Barrier() = 0;
  // Gives every rank the object of rank 0, and cancels it with the group. The ranks are threads of
  // one process, so each may read the memory of the others. Further errors: kUnsupported (they are
  // processes).
  virtual Result<std::shared_ptr<RankShared>> Share(std::shared_ptr<RankShared> mine) = 0;

  // The group of the ranks that give the same `color`, ordered by (`key`, rank).
  virtual Result<std::unique_ptr<HostGroup>> Split(int color, int key) = 0;
  // A group of the same ranks in a world of its own: `Abort` of this world does not reach it. For
  // what the ranks must still do together after one of them failed.
  virtual Result<std::unique_ptr<HostGroup>> Separate() = 0;

  // Gives up: every waiting and later call of any rank of the whole world ends with a kCancelled
  // that carries `why`. Where ranks are processes, there is no way to tell the others, so all
  // processes end; threads whose calls on a track do not end then end their process.
  virtual void Abort(const Status& why) = 0;
  [[nodiscard]] virtual bool abort_ends_processes() const = 0;

  // A track for calls that the ranks of this group make in another way than by this group: one that
  // does not end in time ends the run. `kind`: a literal that tells it from other tracks of the
  // group. Every rank calls it. Null: nothing is watched.
  virtual std::shared_ptr<CallTrack> MakeTrack(std::string_view /*kind*/) { return nullptr; }
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_COMM_HOST_GROUP_H_

// What the ranks of one process show each other, so that each reads the others' memory from its own
// queue.
#ifndef CKPT_TRAINER_DEVICE_PEER_INTERNAL_PEER_BOARD_H_
#define CKPT_TRAINER_DEVICE_PEER_INTERNAL_PEER_BOARD_H_

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/base/mutex.h"
#include "core/base/result.h"
#include "trainer/comm/host_group.h"
#include "trainer/device/collectives.h"
#include "trainer/device/queue.h"
#include "trainer/device/tensor.h"

namespace ckpt::trainer {

// What a rank shows of a call. `call` and `size_bytes` must be the same on all ranks.
struct PeerOperand {
  std::string_view call;  // a literal
  std::uint64_t size_bytes = 0;
  const std::byte* data = nullptr;
  std::vector<RowTransfer> transfers = {};  // AllToAll
  Tensor send_rows = {};
  Event ready = {};  // after it, the operand may be read
};

// The board of one group. Calls are numbered from 1; each is one Show and one Done of every rank.
// Nothing here waits for a queue, only for the threads of the other ranks to make the same call: an
// event may be awaited from another rank's queue only after it was recorded.
class PeerBoard final : public RankShared {
 public:
  explicit PeerBoard(int num_ranks) : ranks_(static_cast<std::size_t>(num_ranks)) {}

  // Shows the operand of `rank`'s next call, waits for those of the others, and returns all in
  // order of rank. If it is OK, the rank must call Done.
  //
  // Errors: kCancelled, kInternal (ranks make different calls).
  Result<std::vector<PeerOperand>> Show(int rank, PeerOperand mine) CKPT_EXCLUDES(mutex_);
  // After `event`, the rank has read the operands of its last call.
  void Done(int rank, Event event) CKPT_EXCLUDES(mutex_);

  // Waits until the other ranks have enqueued their reads of the first `calls` calls, and returns
  // the events after which these are over, in order of rank; none for `rank` itself.
  // Errors: kCancelled.
  Result<std::vector<Event>> AwaitReaders(int rank, std::uint64_t calls) CKPT_EXCLUDES(mutex_);
  // Waits until the others have enqueued their reads of everything that `rank` has shown. If the
  // group is cancelled, nobody reads what he has not seen yet. Returns the events after which
  // nobody reads the memory of `rank`.
  std::vector<Event> Leave(int rank) CKPT_EXCLUDES(mutex_);

  // Every waiting and later Show and AwaitReaders ends with `why` of the first call.
  void Cancel(const Status& why) override CKPT_EXCLUDES(mutex_);

 private:
  // So many of a rank's last calls are remembered. The events of later calls also come after the
  // reads of older ones.
  static constexpr std::uint64_t kRemembered = 16;

  struct Rank {
    std::uint64_t num_shown = 0;
    std::uint64_t num_seen = 0;  // calls of which it has seen the operands of all ranks
    std::uint64_t num_done = 0;
    // Of call n at n % 2: a rank shows n + 2 only after all have shown n + 1, and so have seen n.
    std::array<PeerOperand, 2> operands;
    std::array<Event, kRemembered> done;  // of call n at n % kRemembered
  };

  [[nodiscard]] Rank& At(int rank) CKPT_REQUIRES(mutex_) {
    return ranks_[static_cast<std::size_t>(rank)];
  }
  // Whether `holds` of every rank but `rank`.
  template <typename Predicate>
  [[nodiscard]] bool AllOthers(int rank, const Predicate& holds) const CKPT_REQUIRES(mutex_);
  [[nodiscard]] std::vector<Event> DoneEvents(int rank, std::uint64_t calls) const
      CKPT_REQUIRES(mutex_);

  Mutex mutex_;
  std::condition_variable changed_;
  std::vector<Rank> ranks_ CKPT_GUARDED_BY(mutex_);
  Status cancelled_ CKPT_GUARDED_BY(mutex_);
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DEVICE_PEER_INTERNAL_PEER_BOARD_H_

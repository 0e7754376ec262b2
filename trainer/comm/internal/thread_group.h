// Where the threads of one group of ranks meet.
#ifndef CKPT_TRAINER_COMM_INTERNAL_THREAD_GROUP_H_
#define CKPT_TRAINER_COMM_INTERNAL_THREAD_GROUP_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "core/base/mutex.h"
#include "core/base/status.h"
#include "trainer/comm/internal/host_communicator.h"

namespace ckpt::trainer {

class ThreadGroup;

// What a rank shows its group while a collective runs. `call`, `dtype` and `size_bytes` must be the
// same on all ranks.
struct Operands {
  std::string_view call;  // a literal
  DType dtype = DType::kUint8;
  std::uint64_t size_bytes = 0;
  const std::byte* data = nullptr;
  const RowExchange* rows = nullptr;                   // AllToAll
  const std::shared_ptr<ThreadGroup>* made = nullptr;  // Split: the new group, by its first rank
};

// A collective is Meet, any number of `Sync`, and Part; Part is due whenever Meet was OK. Between
// Meet and Part every rank may read what the others showed. Meet alone can be cancelled: once all
// have met, nothing that follows waits for a rank that could give up, so nobody's operands go away
// under a reader.
class ThreadGroup {
 public:
  // `should_spin`: every rank has a core, so that a short busy wait saves two switches.
  ThreadGroup(int size, bool should_spin)
      : spins_(should_spin ? kSpins : 0), shown_(static_cast<std::size_t>(size)) {}

  [[nodiscard]] int size() const { return static_cast<int>(shown_.size()); }

  // Shows `mine` and waits for all others. On an error there is nothing to part from.
  //
  // Errors: kCancelled (see Cancel), kInternal (the ranks make different calls).
  Status Meet(int rank, const Operands& mine) CKPT_EXCLUDES(mutex_);
  void Sync() CKPT_EXCLUDES(mutex_) { (void)Arrive(/*can_cancel=*/false); }  // always OK
  void Part() CKPT_EXCLUDES(mutex_) { Sync(); }

  // REQUIRES: between Meet and Part.
  [[nodiscard]] const Operands& shown(int rank) const {
    return shown_[static_cast<std::size_t>(rank)];
  }

  // Every waiting and later Meet ends with `why`. The first call counts.
  void Cancel(const Status& why) CKPT_EXCLUDES(mutex_);

 private:
  static constexpr int kSpins = 2000;

  Status Arrive(bool can_cancel) CKPT_EXCLUDES(mutex_);
  Status CheckSameCall(int rank) const;

  const int spins_;
  // Each rank writes its own before it arrives; the meeting orders that before the others' reads,
  // and the parting orders these before the next write.
  std::vector<Operands> shown_;

  Mutex mutex_;
  std::condition_variable changed_;
  int num_arrived_ CKPT_GUARDED_BY(mutex_) = 0;
  Status cancelled_ CKPT_GUARDED_BY(mutex_);
  // How often all have arrived. Written under the mutex; release and acquire let a spinning rank do
  // without it.
  std::atomic<std::uint64_t> num_meetings_ = 0;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_COMM_INTERNAL_THREAD_GROUP_H_

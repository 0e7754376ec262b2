// The meeting point of the threads of one group of ranks.
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
#include "trainer/comm/host_group.h"

namespace ckpt::trainer {

class ThreadGroup;
class ThreadWorld;

// What a rank shows its group while a call runs. `call` and `size_bytes` must be the same on all
// ranks.
struct Operands {
  std::string_view call;  // a literal
  std::uint64_t size_bytes = 0;
  const std::byte* data = nullptr;
  const RowExchange* rows = nullptr;  // ExchangeRows
  // Split: the new group, made by its first rank.
  const std::shared_ptr<ThreadGroup>* made = nullptr;
  const std::shared_ptr<ThreadWorld>* made_world = nullptr;  // Separate: of the group `made`
  const std::shared_ptr<RankShared>* shared = nullptr;       // Share
};

// A call is one Meet, any number of `Sync`, and one Part, which must follow every Meet that
// was OK. Between Meet and Part every rank may read what the others showed. Only Meet can be
// cancelled. Once all ranks have met, no later wait is for a rank that could give up, so no rank's
// operands disappear while another reads them.
class ThreadGroup {
 public:
  // `should_spin`: every rank has a core, so a short busy wait saves two context switches.
  ThreadGroup(int size, bool should_spin)
      : spins_(should_spin ? kSpins : 0), shown_(static_cast<std::size_t>(size)) {}

  [[nodiscard]] int size() const { return static_cast<int>(shown_.size()); }

  // Shows `mine` and waits for all others. After an error, do not call Part.
  //
  // Errors: kCancelled (see Cancel), kInternal (the ranks make different calls).
  Status Meet(int rank, const Operands& mine) CKPT_EXCLUDES(mutex_);
  void Sync() CKPT_EXCLUDES(mutex_) { (void)Arrive(/*can_cancel=*/false); }  // always OK
  void Part() CKPT_EXCLUDES(mutex_) { Sync(); }

  // REQUIRES: between Meet and Part.
  [[nodiscard]] const Operands& shown(int rank) const {
    return shown_[static_cast<std::size_t>(rank)];
  }

  // Every waiting and later Meet ends with `why` of the first call.
  void Cancel(const Status& why) CKPT_EXCLUDES(mutex_);
  // Cancels `shared` with the group, now or later.
  void CancelToo(std::shared_ptr<RankShared> shared) CKPT_EXCLUDES(mutex_);

 private:
  static constexpr int kSpins = 2000;

  Status Arrive(bool can_cancel) CKPT_EXCLUDES(mutex_);
  // Whether the others make the call of `rank`.
  [[nodiscard]] Status CheckCalls(int rank) const;

  const int spins_;
  // Each rank writes its own entry before it arrives. Meeting orders this write before the others'
  // reads, and parting orders those reads before the next write.
  std::vector<Operands> shown_;

  Mutex mutex_;
  std::condition_variable changed_;
  int num_arrived_ CKPT_GUARDED_BY(mutex_) = 0;
  Status cancelled_ CKPT_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<RankShared>> shared_ CKPT_GUARDED_BY(mutex_);
  // How often all ranks have arrived. Written under the mutex. A spinning rank reads it without the
  // mutex, by release and acquire.
  std::atomic<std::uint64_t> num_meetings_ = 0;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_COMM_INTERNAL_THREAD_GROUP_H_

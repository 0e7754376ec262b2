// OpenedRun: the checkpoint that a run resumes, opened once for all ranks of the process.
#ifndef CKPT_TRAINER_RUN_OPENED_RUN_H_
#define CKPT_TRAINER_RUN_OPENED_RUN_H_

#include <memory>
#include <utility>

#include "converters/verbs/training_state.h"
#include "core/base/mutex.h"

namespace ckpt::train {

using StatePtr = std::shared_ptr<const TrainingState>;

// The run's settings are read from it first; then every rank loads its part. It must be closed
// after that, because it keeps files open that the run may remove later.
//
// Thread-safety: thread-safe.
class OpenedRun {
 public:
  explicit OpenedRun(StatePtr state) : state_(std::move(state)) {}

  // Null once it is closed.
  [[nodiscard]] StatePtr state() const CKPT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return state_;
  }
  // Callers that have got the state keep it.
  void Close() CKPT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    state_.reset();
  }

 private:
  mutable Mutex mutex_;
  StatePtr state_ CKPT_GUARDED_BY(mutex_);
};

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_OPENED_RUN_H_

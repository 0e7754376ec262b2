// OpenedState: the checkpoint that a run goes on from, opened once for everybody in the process who
// reads it.
#ifndef CKPT_TOOLS_CKPT_TRAIN_OPENED_STATE_H_
#define CKPT_TOOLS_CKPT_TRAIN_OPENED_STATE_H_

#include <memory>
#include <utility>

#include "converters/verbs/training_state.h"
#include "core/base/mutex.h"

namespace ckpt::train {

using StatePtr = std::shared_ptr<const TrainingState>;

// First the settings of the run are taken from it, then every rank loads its part. A run that held
// on to it would keep files open which it removes one day.
//
// Thread-safety: thread-safe.
class OpenedState {
 public:
  explicit OpenedState(StatePtr state) : state_(std::move(state)) {}

  // Null once it is closed.
  [[nodiscard]] StatePtr state() const CKPT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return state_;
  }
  // Who has the state keeps it.
  void Close() CKPT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    state_.reset();
  }

 private:
  mutable Mutex mutex_;
  StatePtr state_ CKPT_GUARDED_BY(mutex_);
};

}  // namespace ckpt::train

#endif  // CKPT_TOOLS_CKPT_TRAIN_OPENED_STATE_H_

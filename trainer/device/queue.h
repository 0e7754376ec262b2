// Queue and Event: ordered asynchronous work, a CUDA stream's contract.
#ifndef CKPT_TRAINER_DEVICE_QUEUE_H_
#define CKPT_TRAINER_DEVICE_QUEUE_H_

#include <memory>
#include <utility>

#include "core/base/status.h"

namespace ckpt::trainer {

// A point in one queue's work. Copies share it; a default one has always been reached.
class Event {
 public:
  // What a device keeps of the point; each kind of device derives its own.
  class State {
   public:
    virtual ~State() = default;
  };

  Event() = default;
  explicit Event(std::shared_ptr<State> state) : state_(std::move(state)) {}
  [[nodiscard]] const std::shared_ptr<State>& state() const { return state_; }

 private:
  std::shared_ptr<State> state_;
};

// Work runs in the order it was enqueued, at some time after. What enqueued work reads and writes
// must stay valid until it has run; ordering against other queues is only what events give.
//
// A queue that is destroyed finishes its work first.
//
// Thread-safety: one thread enqueues.
class Queue {
 public:
  virtual ~Queue() = default;

  // The point behind everything enqueued so far.
  [[nodiscard]] virtual Event Record() = 0;
  // Work enqueued from now on starts after `event`, and is skipped if the work before `event`
  // failed.
  virtual void Wait(const Event& event) = 0;
  // Blocks the caller until everything enqueued so far has run.
  //
  // Errors: the first failure of enqueued work, or of work that it waited for (a collective whose
  // peer is gone: kCancelled). Once failed, a queue skips its work and repeats the error; its
  // events are reached all the same.
  virtual Status Synchronize() = 0;
  // Behind what was enqueued so far the queue fails with `error`, as if work had returned it: for
  // the caller's thread, where it cannot give later work what that would need.
  virtual void Fail(Status error) = 0;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DEVICE_QUEUE_H_

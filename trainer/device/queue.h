// Queue and Event: ordered asynchronous work, with the contract of a CUDA stream.
#ifndef CKPT_TRAINER_DEVICE_QUEUE_H_
#define CKPT_TRAINER_DEVICE_QUEUE_H_

#include <memory>
#include <utility>

#include "core/base/status.h"

namespace ckpt::trainer {

// A point in one queue's work. Copies share the point. A default Event counts as reached.
class Event {
 public:
  // What a device stores about the point; each kind of device derives its own.
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

// Work runs in the order of enqueueing, at some later time. What it reads and writes must stay
// valid until it has run. Only events order it relative to other queues.
//
// The destructor first runs all enqueued work.
//
// Thread-safety: one thread enqueues.
class Queue {
 public:
  virtual ~Queue() = default;

  // The point after everything enqueued so far.
  [[nodiscard]] virtual Event Record() = 0;
  // Work enqueued from now on starts after `event`. It is skipped if the work before `event`
  // failed.
  virtual void Wait(const Event& event) = 0;
  // Blocks the caller until everything enqueued so far has run.
  //
  // Errors: the first failure of enqueued work, or of work that it waited for (a collective whose
  // peer is gone: kCancelled). A failed queue skips all further work and returns the same error;
  // its events still count as reached.
  virtual Status Synchronize() = 0;
  // Blocks the caller until the work before `event`, a point of this queue, has run. Later work
  // need not have run. Any thread may call it.
  //
  // Errors: the first failure of that work, as Synchronize.
  virtual Status Await(const Event& event) = 0;
  // The queue fails with `error` after what was enqueued so far, as if work had returned it. The
  // caller's thread uses it when it cannot give later work what that would need.
  virtual void Fail(Status error) = 0;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DEVICE_QUEUE_H_

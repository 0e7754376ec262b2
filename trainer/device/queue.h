// Queue and Event: ordered asynchronous work, a CUDA stream's contract.
#ifndef CKPT_TRAINER_DEVICE_QUEUE_H_
#define CKPT_TRAINER_DEVICE_QUEUE_H_

#include <memory>

#include "core/base/status.h"

namespace ckpt::trainer {

class Queue;

// A point in one queue's work. Copies share it; a default one has always been reached.
class Event {
 public:
  class State;

  Event() = default;
  explicit Event(std::shared_ptr<State> state) : state_(std::move(state)) {}
  [[nodiscard]] const std::shared_ptr<State>& state() const { return state_; }

 private:
  std::shared_ptr<State> state_;
};

// Work runs in the order it was enqueued, at some time after. What enqueued work reads and writes must stay valid until
// it has run; ordering against other queues is only what events give.
//
// Thread-safety: one thread enqueues.
class Queue {
 public:
  virtual ~Queue() = default;

  // The point behind everything enqueued so far.
  [[nodiscard]] virtual Event Record() = 0;
  // Work enqueued from now on starts after `event`.
  virtual void Wait(const Event& event) = 0;
  // Blocks the caller until everything enqueued so far has run.
  //
  // Errors: the first failure of enqueued work (a collective whose peer is gone: kCancelled). Once failed, a queue skips
  // its work and repeats the error.
  virtual Status Synchronize() = 0;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DEVICE_QUEUE_H_

// PhaseClock: how long a queue is in each phase of a step, by the device's own clock.
#ifndef CKPT_TRAINER_OPS_PHASE_CLOCK_H_
#define CKPT_TRAINER_OPS_PHASE_CLOCK_H_

#include "trainer/device/queue.h"
#include "trainer/device/tensor.h"
#include "trainer/ops/ops.h"
#include "trainer/ops/step_scalars.h"

namespace ckpt::trainer {

// Nobody waits for it: the queue notes the time when it gets to the call. Phases follow one another
// without gaps, so their times add up to that of the queue.
//
// Thread-safety: the thread that enqueues.
class PhaseClock {
 public:
  // `times`: PhaseTimes on the device. All arguments outlive it.
  PhaseClock(Ops& ops, Queue& queue, const Tensor& times)
      : ops_(&ops), queue_(&queue), times_(times) {}

  // What is enqueued from now on belongs to `phase`.
  void Enter(StepPhase phase) {
    if (phase == phase_) return;
    ops_->EnterPhase(*queue_, phase, times_);
    phase_ = phase;
  }
  [[nodiscard]] StepPhase phase() const { return phase_; }

 private:
  Ops* ops_;
  Queue* queue_;
  Tensor times_;
  StepPhase phase_ = StepPhase::kIdle;
};

// A phase within another. A null clock keeps no times.
class PhaseScope {
 public:
  PhaseScope(PhaseClock* clock, StepPhase phase) : clock_(clock) {
    if (clock_ == nullptr) return;
    before_ = clock_->phase();
    clock_->Enter(phase);
  }
  ~PhaseScope() {
    if (clock_ != nullptr) clock_->Enter(before_);
  }
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  PhaseClock* const clock_;
  StepPhase before_ = StepPhase::kIdle;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPS_PHASE_CLOCK_H_

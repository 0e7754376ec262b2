// StepObserver: who is told of every step of a run.
#ifndef CKPT_TRAINER_RUN_STEP_OBSERVER_H_
#define CKPT_TRAINER_RUN_STEP_OBSERVER_H_

#include "core/base/status.h"
#include "trainer/metrics/step_metrics.h"

namespace ckpt::train {

// Of rank 0, on its thread. An error ends the run.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  virtual Status OnStep(const StepMetrics& metrics) = 0;
  // Returns when all that was told is durable: a checkpoint never knows of steps that the observer lost.
  virtual Status Sync() = 0;
};

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_STEP_OBSERVER_H_

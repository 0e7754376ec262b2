// StepObserver: gets a report of every step of a run.
#ifndef CKPT_TRAINER_RUN_STEP_OBSERVER_H_
#define CKPT_TRAINER_RUN_STEP_OBSERVER_H_

#include "core/base/status.h"
#include "trainer/metrics/step_metrics.h"

namespace ckpt::train {

// Called on rank 0's thread. An error ends the run.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  virtual Status OnStep(const StepMetrics& metrics) = 0;
  // Returns when all reports are durable, so that a checkpoint never contains steps that the
  // observer has lost.
  virtual Status Sync() = 0;
};

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_STEP_OBSERVER_H_

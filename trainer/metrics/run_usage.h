// RunUsage: where the time of a run's steps went, and what memory its rank took.
#ifndef CKPT_TRAINER_METRICS_RUN_USAGE_H_
#define CKPT_TRAINER_METRICS_RUN_USAGE_H_

#include <cstdint>
#include <string>

#include "trainer/metrics/step_metrics.h"

namespace ckpt::train {

class RunUsage {
 public:
  void Add(const StepMetrics& step);
  [[nodiscard]] std::int64_t num_steps() const { return num_steps_; }

  // The mean step, without its save and evaluation: "time: 20.1 ms a step: forward 6.1, backward
  // 11.0, update 2.4, idle 0.4; batches 0.1 ms a step, saves 31.0 ms in all". Phases that never
  // came are left out. REQUIRES: num_steps() > 0.
  [[nodiscard]] std::string TimeText() const;
  // "ranks: forward 5.9 to 6.3 (rank 3), backward 11.0 to 11.2 (rank 0)": RankPhaseMeans::Text.
  // Empty if there is one rank, or were too few steps.
  [[nodiscard]] std::string RanksText() const;
  // "memory: 1.2 GiB at most: weights 0.3 GiB, activations 0.9 GiB". REQUIRES: num_steps() > 0.
  [[nodiscard]] std::string MemoryText() const;

 private:
  StepMetrics sum_;  // times are summed; the bytes are the last step's
  trainer::RankPhaseMeans rank_phases_;
  std::int64_t num_steps_ = 0;
};

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_METRICS_RUN_USAGE_H_

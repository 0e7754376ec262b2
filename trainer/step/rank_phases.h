// RankPhases: how long the ranks of a run were in each phase of a step.
#ifndef CKPT_TRAINER_STEP_RANK_PHASES_H_
#define CKPT_TRAINER_STEP_RANK_PHASES_H_

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "trainer/ops/step_scalars.h"

namespace ckpt::trainer {

// The ranks that were in a phase for the shortest and for the longest time; of several, the first.
struct PhaseSpread {
  double min_ms = 0;
  double max_ms = 0;
  int min_rank = 0;
  int max_rank = 0;
};

struct RankPhases {
  std::int64_t step = 0;                             // counted from 1
  std::array<PhaseSpread, kNumStepPhases> phases{};  // by StepPhase
};

// `ns`: PhaseTimes::ns of rank after rank.
[[nodiscard]] RankPhases SpreadOverRanks(std::int64_t step, std::span<const std::int64_t> ns);

// The means of several steps.
class RankPhaseMeans {
 public:
  void Add(const RankPhases& step);
  [[nodiscard]] std::int64_t num_steps() const { return num_steps_; }
  // The means of the shortest and of the longest times, and the ranks that were shortest and
  // longest in most steps. REQUIRES: num_steps() > 0.
  [[nodiscard]] std::array<PhaseSpread, kNumStepPhases> Means() const;
  // "forward 5.9 to 6.3 (rank 3), backward 11.0 to 11.2 (rank 0)": the rank is the slowest of most
  // steps. Phases that never came are left out. REQUIRES: num_steps() > 0.
  [[nodiscard]] std::string Text() const;

 private:
  struct Sum {
    double min_ms = 0;
    double max_ms = 0;
    std::map<int, std::int64_t> min_steps;  // by rank, in how many steps it was the one
    std::map<int, std::int64_t> max_steps;
  };

  std::array<Sum, kNumStepPhases> sums_;
  std::int64_t num_steps_ = 0;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_STEP_RANK_PHASES_H_

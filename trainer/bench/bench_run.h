// Times training steps on one rank.
#ifndef CKPT_TRAINER_BENCH_BENCH_RUN_H_
#define CKPT_TRAINER_BENCH_BENCH_RUN_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/exec/progress.h"
#include "trainer/bench/bench_model.h"
#include "trainer/bench/choose_products.h"
#include "trainer/device/device.h"
#include "trainer/ledger/ledger.h"
#include "trainer/ledger/recorded_ops.h"
#include "trainer/ops/product_algorithms.h"
#include "trainer/step/rank_trainer.h"

namespace ckpt::train {

struct BenchPlan {
  std::int64_t warmup = 10;  // steps before the timed ones
  std::int64_t steps = 30;
  std::int64_t ledger_steps = 0;  // after the timed ones, with a record of the device's work
  // After all others, without gathers and reductions (RankTrainer::LeaveOutTransfers).
  std::int64_t steps_without_transfers = 0;
  // What a rank's device can do; where it is 0, what the device says of itself counts.
  trainer::Roofline peaks;
  // Whether weights are those of FillBenchWeights, which only the benchmark's models have.
  // Otherwise they are drawn as those of a run.
  bool has_bench_weights = true;
  // If not null, algorithms of products are chosen after the warm-up, before the timed steps. The
  // device's operations take part in the trial, and there is one rank.
  trainer::ProductTrial* product_trial = nullptr;
  BenchTokens tokens;
};

struct BenchTimes {
  std::vector<double> step_ms;  // of the timed steps, in order
  // Of the steps without transfers, in order, without the first one.
  std::vector<double> step_without_transfers_ms;
  // Of all steps but those of a trial, in order, those before the timed ones too.
  std::vector<double> losses;
  // By StepPhase: the mean of the timed steps, on this rank.
  std::array<double, trainer::kNumStepPhases> phase_ms{};
  trainer::RankPhaseMeans rank_phases;  // of all ranks; of fewer steps, or none, on one rank
  // The peak of each use of memory on this rank.
  std::array<std::uint64_t, trainer::kNumMemoryUses> peak_bytes{};
  // Rows of the most used expert of any layer and timed step, divided by the mean of its layer; in
  // models with experts.
  std::optional<double> expert_load_max;
  std::optional<ProductChoice> product_choice;  // with BenchPlan::product_trial
  trainer::Roofline peaks;                      // of the compute dtype; 0: not known
  std::optional<trainer::Ledger> ledger;

  [[nodiscard]] double median_ms() const;
  // The part of a step that is left over when it is compared with one without transfers: what
  // communication costs. None if such steps were not timed.
  [[nodiscard]] std::optional<double> exposed_ms() const;
};

// Sets the weights, then trains. Every rank calls it with the same plan.
// `recorded`: the trainer's operations; null: the rank makes no ledger. `progress` counts steps;
// null: none. Errors: those of FillBenchWeights, RankTrainer and Device::RecordWork.
Result<BenchTimes> TimeSteps(const BenchPlan& plan, trainer::RankTrainer& trainer,
                             trainer::Device& device, trainer::RecordedOps* recorded, int rank,
                             ProgressSink* progress);

struct BenchReport {
  std::string model;
  std::string device;  // name of a backend
  int num_ranks = 1;
  std::int64_t seq = 0;
  std::int64_t tokens_of_rank = 0;  // of a step
  double flops_per_token = 0;       // TrainingFlopsPerToken
  BenchTimes times;

  [[nodiscard]] double tokens_per_s_of_rank() const;
  [[nodiscard]] double flops_per_s_of_rank() const;
};

[[nodiscard]] std::string BenchJson(const BenchReport& report);
[[nodiscard]] std::string BenchText(const BenchReport& report);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_BENCH_BENCH_RUN_H_

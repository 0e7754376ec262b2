// The metrics of one step.
#ifndef CKPT_TRAINER_METRICS_STEP_METRICS_H_
#define CKPT_TRAINER_METRICS_STEP_METRICS_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "trainer/device/device.h"
#include "trainer/step/rank_trainer.h"

namespace ckpt::train {

struct StepMetrics {
  std::int64_t step = 0;  // counted from 1, over all parts of a resumed run
  double loss = 0;        // of the batch, before the update
  double grad_norm = 0;   // before clipping
  double lr = 0;
  double aux_loss = 0;      // of the experts' balance; not part of `loss`
  std::int64_t tokens = 0;  // with a label, on all ranks
  double step_ms = 0;       // with the reading of the batch
  double save_ms = 0;       // time that training waited for checkpoints since the step before
  double data_wait_ms = 0;  // time that the host waited for batches since the step before
  std::array<double, trainer::kNumStepPhases> phase_ms = {};  // StepReport::phase_ms
  std::optional<trainer::RankPhases> rank_phases = {};        // StepReport::rank_phases
  // The peak of each MemoryUse up to now, on this rank.
  std::array<std::uint64_t, trainer::kNumMemoryUses> rank_peak_bytes = {};
  std::uint64_t peak_bytes = 0;  // peak of device memory up to now, on the rank that used most
  // Model FLOP utilisation: the model's arithmetic (TrainingFlopsPerToken) as a share of what the
  // devices could do in the step's time; where their peak is known.
  std::optional<double> mfu = {};
  std::optional<trainer::StepReport::ExpertLoad> experts = {};  // only in models with experts
  std::optional<double> eval_loss = {};  // if an evaluation followed the step
  double eval_ms = 0;                    // of that evaluation

  [[nodiscard]] double tokens_per_s() const {
    return step_ms > 0 ? static_cast<double>(tokens) * 1e3 / step_ms : 0;
  }
};

// One JSON object and '\n'. Numbers have enough digits to be read back exactly. REQUIRES: all are
// finite. `run_id`: the run of this step; empty: the lines of only one run are in one place.
[[nodiscard]] std::string MetricsJson(const StepMetrics& metrics, std::string_view run_id = {});

// Text: "step 20/100  loss 3.2101  grad_norm 1.93  lr 0.001  81.2 ms  1261 tokens/s", and a second
// line for an evaluation.
[[nodiscard]] std::string MetricsText(const StepMetrics& metrics, std::int64_t train_iters);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_METRICS_STEP_METRICS_H_

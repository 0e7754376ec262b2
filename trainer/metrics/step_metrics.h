// What a step is told by.
#ifndef CKPT_TRAINER_METRICS_STEP_METRICS_H_
#define CKPT_TRAINER_METRICS_STEP_METRICS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "trainer/step/rank_trainer.h"

namespace ckpt::train {

struct StepMetrics {
  std::int64_t step = 0;  // counted from 1, over all parts of a resumed run
  double loss = 0;        // of the batch, before the update
  double grad_norm = 0;   // before clipping
  double lr = 0;
  double aux_loss = 0;           // of the experts' balance; no part of `loss`
  std::int64_t tokens = 0;       // with a label, of all ranks
  double step_ms = 0;            // reading the batch included
  double save_ms = 0;            // that training waited for checkpoints since the step before
  std::uint64_t peak_bytes = 0;  // of device memory, that a rank has held so far
  std::optional<trainer::StepReport::ExpertLoad> experts = {};  // of a model with experts
  std::optional<double> eval_loss = {};  // where the step was followed by an evaluation
  double eval_ms = 0;                    // of that

  [[nodiscard]] double tokens_per_s() const {
    return step_ms > 0 ? static_cast<double>(tokens) * 1e3 / step_ms : 0;
  }
};

// One JSON object and a line end; numbers read back as they were. REQUIRES: all are finite.
// `run_id`: whose step it is; empty: nobody else's lines can lie beside it.
[[nodiscard]] std::string MetricsJson(const StepMetrics& metrics, std::string_view run_id = {});

// For people: "step 20/100  loss 3.2101  grad_norm 1.93  lr 0.001  81.2 ms  1261 tokens/s", a second line for an evaluation.
[[nodiscard]] std::string MetricsText(const StepMetrics& metrics, std::int64_t train_iters);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_METRICS_STEP_METRICS_H_

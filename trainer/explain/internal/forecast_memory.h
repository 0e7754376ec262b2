// What a forecast says of memory.
#ifndef CKPT_TRAINER_EXPLAIN_INTERNAL_FORECAST_MEMORY_H_
#define CKPT_TRAINER_EXPLAIN_INTERNAL_FORECAST_MEMORY_H_

#include <optional>
#include <span>

#include "core/base/status.h"
#include "trainer/explain/cluster_rates.h"
#include "trainer/explain/forecast.h"
#include "trainer/params/param_spec.h"
#include "trainer/params/shard_plan.h"
#include "trainer/step/rehearse_step.h"
#include "trainer/step/train_config.h"

namespace ckpt::train {

// The parts of a forecast that depend on the experts of a rank, not on how many ranks there are.
struct Activations {
  int expert_parallel = 0;
  trainer::RehearsedBytes bytes;
  std::optional<trainer::RehearsedBytes> with_mean_rows = {};  // if it was asked for
};

// Says what a GPU holds, and whether it has memory for it. Errors: those of RehearseStep.
Status ReckonMemory(const trainer::TrainConfig& config, const Cluster& cluster,
                    std::span<const trainer::UnitSpec> units, const trainer::ShardPlan& plan,
                    Activations& activations, Forecast& forecast);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_EXPLAIN_INTERNAL_FORECAST_MEMORY_H_

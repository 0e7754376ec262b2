// What a step would take on a cluster, from measured times of kernels and the rates of links.
//
// Left out: that links and kernels disturb each other, hosts that differ, and congestion. So a
// forecast is what a run can reach and not what it will.
#ifndef CKPT_TRAINER_EXPLAIN_FORECAST_H_
#define CKPT_TRAINER_EXPLAIN_FORECAST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/json/json_writer.h"
#include "trainer/explain/cluster_rates.h"
#include "trainer/explain/step_simulation.h"
#include "trainer/step/train_config.h"

namespace ckpt::train {

struct Forecast {
  trainer::MeshConfig mesh;
  StepTime step;
  double tokens_per_s_of_gpu = 0;
  double mfu = 0;
  std::uint64_t bytes_of_gpu = 0;  // Explanation::total_bytes
  bool fits = true;                // in the GPU's memory
  // Where the experts of a rank have memory for the most rows that can come, and only therefore a
  // run does not fit: the bytes of a GPU with memory for the mean of rows, the least that
  // moe_expert_rank_capacity_factor can ask for.
  std::optional<std::uint64_t> bytes_with_mean_rows = {};
};

// Ranks are numbered host after host. REQUIRES: ValidateTrainConfig accepts `config`.
// Errors: kUsage (the cluster has fewer GPUs than the mesh has ranks).
Result<Forecast> ForecastStep(const trainer::TrainConfig& config, const Cluster& cluster);

// How a sweep divides the state. The last two divide it within a host and have replicas elsewhere.
enum class Strategy : std::uint8_t {
  kNoShard,
  kOptim,
  kOptimGrads,
  kOptimGradsParams,
  kHsdp,
  kHfsdp,
};
inline constexpr int kNumStrategies = 6;
[[nodiscard]] std::string_view StrategyName(Strategy strategy);  // "no_shard", …, "hsdp", "hfsdp"

struct SweepCell {
  Strategy strategy = Strategy::kNoShard;
  Forecast forecast;
};

// Forecasts for 1, 2, 4, … GPUs up to `max_gpus` with each strategy, as far as such a mesh exists.
// Each GPU has the batch that a rank of `config` has; experts are divided as there.
// Errors: those of ForecastStep.
Result<std::vector<SweepCell>> SweepCluster(const trainer::TrainConfig& config,
                                            const Cluster& cluster, std::int64_t max_gpus);

struct ClusterForecast {
  std::string name;  // as it was asked for
  Cluster cluster;
  Forecast run;  // of the mesh that was asked for
  std::vector<SweepCell> sweep;
};

// Writes the value of a key.
void WriteForecast(const ClusterForecast& forecast, JsonWriter& json);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_EXPLAIN_FORECAST_H_

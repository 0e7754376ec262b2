#include "trainer/explain/internal/forecast_memory.h"

#include <cstdint>

#include "trainer/optim/optimizer.h"
#include "trainer/step/step_buffers.h"

namespace ckpt::train {

Status ReckonMemory(const trainer::TrainConfig& config, const Cluster& cluster,
                    std::span<const trainer::UnitSpec> units, const trainer::ShardPlan& plan,
                    Activations& activations, Forecast& forecast) {
  const std::uint64_t state_bytes = trainer::PlanTrainingBytes(config.optimizer, plan).total() +
                                    trainer::StepBytes(config, units, plan);
  const auto bytes_with = [&](const trainer::RehearsedBytes& step) {
    return state_bytes + step.activations + step.tables;
  };
  const auto fits = [&](std::uint64_t bytes) {
    return static_cast<double>(bytes) <= cluster.gpu.memory_bytes.value;
  };
  forecast.bytes_of_gpu = bytes_with(activations.bytes);
  forecast.fits = fits(forecast.bytes_of_gpu);
  if (forecast.fits || config.mesh.expert_parallel == 1 || config.rank_capacity_factor) {
    return OkStatus();
  }
  if (!activations.with_mean_rows) {
    trainer::TrainConfig bounded = config;
    bounded.rank_capacity_factor = 1;
    CKPT_ASSIGN_OR_RETURN(activations.with_mean_rows, trainer::RehearseStep(bounded, 0));
  }
  const std::uint64_t bytes = bytes_with(*activations.with_mean_rows);
  if (fits(bytes)) forecast.bytes_with_mean_rows = bytes;
  return OkStatus();
}

}  // namespace ckpt::train

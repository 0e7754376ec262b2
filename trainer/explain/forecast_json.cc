#include <string_view>

#include "core/json/json_writer.h"
#include "trainer/explain/forecast.h"

namespace ckpt::train {
namespace {

void WriteStep(const Forecast& forecast, JsonWriter& json) {
  const StepTime& step = forecast.step;
  json.Key("ranks").Int(forecast.mesh.world_size);
  json.Key("num_distributed_optimizer_instances").Int(forecast.mesh.num_instances);
  json.Key("expert_model_parallel_size").Int(forecast.mesh.expert_parallel);
  json.Key("step_ms").Double(step.total()).Key("compute_ms").Double(step.compute);
  json.Key("exposed_ms").Double(step.exposed());
  json.Key("gather_wait_ms").Double(step.gather_wait);
  json.Key("reduce_wait_ms").Double(step.reduce_wait);
  json.Key("exchange_ms").Double(step.exchange);
  json.Key("tokens_s_gpu").Double(forecast.tokens_per_s_of_gpu).Key("mfu").Double(forecast.mfu);
  json.Key("bytes_per_rank").Int(forecast.bytes_of_gpu).Key("fits").Bool(forecast.fits);
  if (forecast.bytes_with_mean_rows) {
    json.Key("bytes_with_mean_rows").Int(*forecast.bytes_with_mean_rows);
  }
}

}  // namespace

void WriteForecast(const ClusterForecast& forecast, JsonWriter& json) {
  json.BeginObject().Key("name").Text(forecast.name);
  json.Key("gpus_per_host").Int(forecast.cluster.gpus_per_host);
  json.Key("run").BeginObject();
  WriteStep(forecast.run, json);
  json.End().Key("sweep").BeginArray();
  for (const SweepCell& cell : forecast.sweep) {
    json.BeginObject().Key("strategy").Text(StrategyName(cell.strategy));
    WriteStep(cell.forecast, json);
    json.End();
  }
  json.End().Key("rates").BeginArray();
  ForEachRate(forecast.cluster, [&](std::string_view name, const Rate& rate) {
    json.BeginObject().Key("name").Text(name).Key("value").Double(rate.value);
    json.Key("unit").Text(rate.unit).Key("source").Text(rate.source).End();
  });
  json.End().End();
}

}  // namespace ckpt::train

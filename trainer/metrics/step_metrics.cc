#include "trainer/metrics/step_metrics.h"

#include <fmt/format.h>

#include "core/json/json_writer.h"

namespace ckpt::train {

std::string MetricsJson(const StepMetrics& metrics, std::string_view run_id) {
  JsonWriter json;
  json.BeginObject().Key("step").Int(metrics.step).Key("loss").Double(metrics.loss);
  json.Key("grad_norm").Double(metrics.grad_norm).Key("lr").Double(metrics.lr);
  json.Key("tokens").Int(metrics.tokens).Key("step_ms").Double(metrics.step_ms);
  json.Key("tokens_per_s").Double(metrics.tokens_per_s());
  if (metrics.mfu) json.Key("mfu").Double(*metrics.mfu);
  json.Key("data_wait_ms").Double(metrics.data_wait_ms);
  for (std::size_t phase = 0; phase < metrics.phase_ms.size(); ++phase) {
    json.Key(fmt::format("{}_ms", trainer::kStepPhaseNames[phase])).Double(metrics.phase_ms[phase]);
  }
  if (metrics.rank_phases) {
    json.Key("rank_phases").BeginObject().Key("step").Int(metrics.rank_phases->step);
    for (std::size_t phase = 0; phase < metrics.rank_phases->phases.size(); ++phase) {
      const trainer::PhaseSpread& spread = metrics.rank_phases->phases[phase];
      json.Key(fmt::format("{}_ms", trainer::kStepPhaseNames[phase])).BeginObject();
      json.Key("min").Double(spread.min_ms).Key("min_rank").Int(spread.min_rank);
      json.Key("max").Double(spread.max_ms).Key("max_rank").Int(spread.max_rank).End();
    }
    json.End();
  }
  json.Key("peak_bytes").Int(metrics.peak_bytes);
  json.Key("rank_peak_bytes").BeginObject();
  for (std::size_t use = 0; use < metrics.rank_peak_bytes.size(); ++use) {
    json.Key(trainer::MemoryUseName(static_cast<trainer::MemoryUse>(use)))
        .Int(metrics.rank_peak_bytes[use]);
  }
  json.End();
  if (metrics.experts) {
    json.Key("aux_loss").Double(metrics.aux_loss);
    json.Key("expert_load_max").Double(metrics.experts->most);
    json.Key("expert_load_min").Double(metrics.experts->least);
    json.Key("dropped_tokens").Int(metrics.experts->dropped);
  }
  if (metrics.save_ms > 0) json.Key("save_ms").Double(metrics.save_ms);
  if (metrics.eval_loss) {
    json.Key("eval_loss").Double(*metrics.eval_loss).Key("eval_ms").Double(metrics.eval_ms);
  }
  if (!run_id.empty()) json.Key("run").Text(run_id);
  json.End();
  return json.Take() + "\n";
}

std::string MetricsText(const StepMetrics& metrics, std::int64_t train_iters) {
  const std::string step = fmt::format("step {}/{}", metrics.step, train_iters);
  std::string text = fmt::format(
      "{}  loss {:.4f}  grad_norm {:.3g}  lr {:.3g}  {:.1f} ms  {:.0f} tokens/s\n", step,
      metrics.loss, metrics.grad_norm, metrics.lr, metrics.step_ms, metrics.tokens_per_s());
  if (metrics.eval_loss) text += fmt::format("{}  eval loss {:.4f}\n", step, *metrics.eval_loss);
  return text;
}

}  // namespace ckpt::train

#include "tools/ckpt-train/run_log.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/base/quote.h"

namespace ckpt::train {
namespace {

std::vector<Scalar> ScalarsOf(const StepMetrics& metrics) {
  std::vector<Scalar> scalars = {{"loss", metrics.loss},
                                 {"grad_norm", metrics.grad_norm},
                                 {"lr", metrics.lr},
                                 {"tokens_per_s", metrics.tokens_per_s()},
                                 {"peak_bytes", static_cast<double>(metrics.peak_bytes)}};
  if (metrics.mfu) scalars.push_back({"mfu", *metrics.mfu});
  scalars.push_back({"data_wait_ms", metrics.data_wait_ms});
  for (std::size_t phase = 0; phase < metrics.phase_ms.size(); ++phase) {
    scalars.push_back(
        {fmt::format("{}_ms", trainer::kStepPhaseNames[phase]), metrics.phase_ms[phase]});
  }
  if (metrics.rank_phases) {
    for (std::size_t phase = 0; phase < metrics.phase_ms.size(); ++phase) {
      scalars.push_back({fmt::format("{}_ms_of_slowest_rank", trainer::kStepPhaseNames[phase]),
                         metrics.rank_phases->phases[phase].max_ms});
    }
  }
  if (metrics.experts) {
    scalars.push_back({"aux_loss", metrics.aux_loss});
    scalars.push_back({"expert_load_max", metrics.experts->most});
    scalars.push_back({"expert_load_min", metrics.experts->least});
    scalars.push_back({"dropped_tokens", static_cast<double>(metrics.experts->dropped)});
  }
  if (metrics.eval_loss) scalars.push_back({"eval_loss", *metrics.eval_loss});
  return scalars;
}

std::string FormatSeconds(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::ceil(seconds));
  if (whole < 120) return fmt::format("{} s", whole);
  if (whole < 7200) return fmt::format("{} min", whole / 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

}  // namespace

RunLog::RunLog(const LoopSettings& settings, const cli::CommonOptions& options,
               cli::Streams& streams)
    : settings_(settings), options_(options), streams_(streams) {
  if (options.progress.value_or(streams.err_is_terminal && !options.quiet)) {
    status_.emplace(streams.err);
  }
}

Status RunLog::TakeFiles(Storage& storage) {
  if (!settings_.metrics.empty()) {
    CKPT_ASSIGN_OR_RETURN(metrics_, MetricsLog::Take(storage, settings_.metrics));
  }
  if (!settings_.tensorboard_dir.empty()) {
    CKPT_ASSIGN_OR_RETURN(events_, EventFile::Take(storage, settings_.tensorboard_dir));
  }
  return OkStatus();
}

Status RunLog::BeginFiles(const RunPosition& run) {
  run_ = run;
  start_ = Clock::now();
  if (metrics_) CKPT_RETURN_IF_ERROR(metrics_->GoOn(run));
  return events_ ? events_->Begin(run) : OkStatus();
}

Status RunLog::OnStep(const StepMetrics& metrics) {
  const std::string json = MetricsJson(metrics, run_.run_id);
  if (metrics_) CKPT_RETURN_IF_ERROR(metrics_->Append(json));
  if (events_) CKPT_RETURN_IF_ERROR(events_->Add(metrics.step, ScalarsOf(metrics)));
  const bool is_text = !options_.json && !options_.quiet && IsShown(metrics);
  if (options_.json || is_text) {
    if (status_) status_->Clear();
    streams_.out.Write(is_text ? MetricsText(metrics, settings_.train_iters) : json);
    CKPT_RETURN_IF_ERROR(streams_.out.Flush());
  }
  ShowProgress(metrics);
  usage_.Add(metrics);
  return OkStatus();
}

void RunLog::SayUsage() {
  if (options_.verbosity < 1 || usage_.num_steps() == 0) return;
  Say(usage_.TimeText());
  if (const std::string ranks = usage_.RanksText(); !ranks.empty()) Say(ranks);
  Say(usage_.MemoryText());
}

void RunLog::Say(std::string_view text) {
  if (options_.quiet) return;
  if (status_) status_->Clear();
  streams_.err.Write(EscapeControls(text) + "\n");
  // Nowhere is left to tell that standard error cannot be written.
  (void)streams_.err.Flush().ok();
}

Status RunLog::Sync() {
  if (metrics_) CKPT_RETURN_IF_ERROR(metrics_->Sync());
  return events_ ? events_->Sync() : OkStatus();
}

bool RunLog::IsShown(const StepMetrics& metrics) const {
  if (settings_.log_interval == 0) return false;
  return metrics.step % settings_.log_interval == 0 || metrics.step == run_.last_step + 1 ||
         metrics.step == settings_.train_iters || metrics.eval_loss.has_value();
}

void RunLog::ShowProgress(const StepMetrics& metrics) {
  if (!status_ || !status_->IsDue()) return;
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  const double rate = static_cast<double>(metrics.step - run_.last_step) / std::max(seconds, 1e-9);
  const auto left = static_cast<double>(settings_.train_iters - metrics.step);
  status_->Show(fmt::format("train  {:3}%  step {} of {}  {:.3g} steps/s  eta {}  loss {:.4f}",
                            100 * metrics.step / settings_.train_iters, metrics.step,
                            settings_.train_iters, rate, FormatSeconds(left / rate), metrics.loss));
}

}  // namespace ckpt::train

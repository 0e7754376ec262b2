#include "trainer/metrics/run_usage.h"

#include <cstddef>
#include <numeric>

#include <fmt/format.h>

#include "core/base/units.h"

namespace ckpt::train {

void RunUsage::Add(const StepMetrics& step) {
  ++num_steps_;
  sum_.step_ms += step.step_ms;
  sum_.save_ms += step.save_ms;
  sum_.data_wait_ms += step.data_wait_ms;
  for (std::size_t i = 0; i < step.phase_ms.size(); ++i) sum_.phase_ms[i] += step.phase_ms[i];
  sum_.rank_peak_bytes = step.rank_peak_bytes;
  if (step.rank_phases) rank_phases_.Add(*step.rank_phases);
}

std::string RunUsage::RanksText() const {
  return rank_phases_.num_steps() == 0 ? "" : "ranks: " + rank_phases_.Text();
}

std::string RunUsage::TimeText() const {
  const auto steps = static_cast<double>(num_steps_);
  std::string text = fmt::format("time: {:.1f} ms a step", sum_.step_ms / steps);
  const char* separator = ": ";
  for (std::size_t phase = 0; phase < sum_.phase_ms.size(); ++phase) {
    if (sum_.phase_ms[phase] == 0) continue;
    text += fmt::format("{}{} {:.1f}", separator, trainer::kStepPhaseNames[phase],
                        sum_.phase_ms[phase] / steps);
    separator = ", ";
  }
  text += fmt::format("; batches {:.1f} ms a step", sum_.data_wait_ms / steps);
  if (sum_.save_ms > 0) text += fmt::format(", saves {:.1f} ms in all", sum_.save_ms);
  return text;
}

std::string RunUsage::MemoryText() const {
  const auto& bytes = sum_.rank_peak_bytes;
  std::string text =
      fmt::format("memory: {} at most",
                  FormatByteSize(std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0})));
  const char* separator = ": ";
  for (std::size_t use = 0; use < bytes.size(); ++use) {
    if (bytes[use] == 0) continue;
    text += fmt::format("{}{} {}", separator,
                        trainer::MemoryUseName(static_cast<trainer::MemoryUse>(use)),
                        FormatByteSize(bytes[use]));
    separator = ", ";
  }
  return text;
}

}  // namespace ckpt::train

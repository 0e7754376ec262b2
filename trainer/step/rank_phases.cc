#include "trainer/step/rank_phases.h"

#include <algorithm>
#include <cstddef>

#include <fmt/format.h>

#include "core/base/check.h"

namespace ckpt::trainer {
namespace {

// The rank that was the one in most steps.
int MostOften(const std::map<int, std::int64_t>& steps) {
  return std::ranges::max_element(steps, {}, [](const auto& rank) { return rank.second; })->first;
}

}  // namespace

RankPhases SpreadOverRanks(std::int64_t step, std::span<const std::int64_t> ns) {
  CKPT_CHECK(!ns.empty() && ns.size() % kNumStepPhases == 0);
  RankPhases spread = {.step = step};
  for (std::size_t phase = 0; phase < kNumStepPhases; ++phase) {
    PhaseSpread& of_phase = spread.phases[phase];
    for (std::size_t at = phase; at < ns.size(); at += kNumStepPhases) {
      const double ms = static_cast<double>(ns[at]) / 1e6;
      const auto rank = static_cast<int>(at / kNumStepPhases);
      if (rank == 0 || ms < of_phase.min_ms) {
        of_phase.min_ms = ms;
        of_phase.min_rank = rank;
      }
      if (rank == 0 || ms > of_phase.max_ms) {
        of_phase.max_ms = ms;
        of_phase.max_rank = rank;
      }
    }
  }
  return spread;
}

void RankPhaseMeans::Add(const RankPhases& step) {
  ++num_steps_;
  for (std::size_t phase = 0; phase < kNumStepPhases; ++phase) {
    const PhaseSpread& spread = step.phases[phase];
    Sum& sum = sums_[phase];
    sum.min_ms += spread.min_ms;
    sum.max_ms += spread.max_ms;
    ++sum.min_steps[spread.min_rank];
    ++sum.max_steps[spread.max_rank];
  }
}

std::array<PhaseSpread, kNumStepPhases> RankPhaseMeans::Means() const {
  CKPT_CHECK(num_steps_ > 0);
  const auto steps = static_cast<double>(num_steps_);
  std::array<PhaseSpread, kNumStepPhases> means{};
  std::ranges::transform(sums_, means.begin(), [&](const Sum& sum) {
    return PhaseSpread{.min_ms = sum.min_ms / steps,
                       .max_ms = sum.max_ms / steps,
                       .min_rank = MostOften(sum.min_steps),
                       .max_rank = MostOften(sum.max_steps)};
  });
  return means;
}

std::string RankPhaseMeans::Text() const {
  const std::array<PhaseSpread, kNumStepPhases> means = Means();
  std::string text;
  for (std::size_t phase = 0; phase < kNumStepPhases; ++phase) {
    const PhaseSpread& mean = means[phase];
    if (mean.max_ms == 0) continue;
    text += fmt::format("{}{} {:.1f} to {:.1f} (rank {})", text.empty() ? "" : ", ",
                        kStepPhaseNames[phase], mean.min_ms, mean.max_ms, mean.max_rank);
  }
  return text;
}

}  // namespace ckpt::trainer

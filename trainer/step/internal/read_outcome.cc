#include "trainer/step/internal/read_outcome.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>

#include <fmt/format.h>

namespace ckpt::trainer {
namespace {

StepReport::ExpertLoad DescribeExperts(const StepBuffers::Results& results,
                                       std::size_t num_experts) {
  StepReport::ExpertLoad load = {.dropped = results.outcome.dropped};
  for (std::size_t first = 0; first < results.expert_counts.size(); first += num_experts) {
    const std::span layer = results.expert_counts.subspan(first, num_experts);
    const auto all = std::accumulate(layer.begin(), layer.end(), std::int64_t{0});
    if (all == 0) continue;
    const double mean = static_cast<double>(all) / static_cast<double>(num_experts);
    load.most = std::max(load.most, static_cast<double>(*std::ranges::max_element(layer)) / mean);
    load.least = std::min(load.least, static_cast<double>(*std::ranges::min_element(layer)) / mean);
  }
  return load;
}

}  // namespace

Status CheckOutcome(const StepBuffers::Results& results, const TrainConfig& config, int rank,
                    const GradNorm& norm) {
  const StepOutcome& outcome = results.outcome;
  switch (outcome.failure) {
    case StepFailure::kNone:
      return OkStatus();
    case StepFailure::kLoss: {
      const auto bad =
          std::ranges::find_if(results.means, [](double mean) { return !std::isfinite(mean); });
      Status status = Error(ErrorKind::kValueMismatch, "the loss is not finite");
      if (bad == results.means.end()) {
        return std::move(status)
            .Actual(fmt::format("{}", outcome.loss))
            .Hint("the error of another rank names the micro-batch");
      }
      return std::move(status).Actual(
          fmt::format("rank {}, micro-batch {}", rank, bad - results.means.begin()));
    }
    case StepFailure::kGradient: {
      Status status = Error(ErrorKind::kValueMismatch, "a gradient is not finite");
      return outcome.bad_row < 0
                 ? std::move(status).Hint("the error of another rank names the parameter")
                 : std::move(status).Tensor(norm.NameOf(outcome.bad_row));
    }
    case StepFailure::kOverflow:
      return RowsDoNotFit(config);
    case StepFailure::kEarlier:
      break;
  }
  return Error(ErrorKind::kInternal, "a step was skipped, but no step before it has failed");
}

Status RowsDoNotFit(const TrainConfig& config) {
  return Error(ErrorKind::kUsage, "the experts of a rank got more tokens than they have memory for")
      .Expected(fmt::format("at most moe_expert_rank_capacity_factor={} times the mean",
                            config.rank_capacity_factor.value_or(0)))
      .Hint("raise moe_expert_rank_capacity_factor, or leave it out");
}

StepReport ReportOf(const StepBuffers::Results& results, const TrainConfig& config) {
  const StepOutcome& outcome = results.outcome;
  StepReport report = {.loss = outcome.loss,
                       .aux_loss = outcome.aux_loss,
                       .grad_norm = outcome.grad_norm,
                       .tokens = outcome.tokens,
                       .peak_bytes = static_cast<std::uint64_t>(outcome.peak_bytes),
                       .is_stop_asked = outcome.stop_votes > 0};
  std::ranges::transform(results.phases.ns, report.phase_ms.begin(),
                         [](std::int64_t ns) { return static_cast<double>(ns) / 1e6; });
  if (config.model.moe) {
    report.experts =
        DescribeExperts(results, static_cast<std::size_t>(config.model.moe->num_experts));
  }
  return report;
}

}  // namespace ckpt::trainer

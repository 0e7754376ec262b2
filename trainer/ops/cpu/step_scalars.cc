// What a step sums and decides.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/base/check.h"
#include "core/base/mutex.h"
#include "trainer/device/cpu/host_device.h"
#include "trainer/ops/cpu/internal/host_ops_impl.h"
#include "trainer/ops/cpu/internal/numeric.h"

namespace ckpt::trainer {
namespace {

constexpr std::int64_t kGrainTerms = 16 << 10;  // terms of exact sums that are worth a thread

void CheckScalars(const Tensor& scalars, std::int64_t words) {
  CKPT_CHECK(scalars.dtype == DType::kInt64 && scalars.num_elems() >= words);
}

// Adds a term to a sum in device memory.
void AddTo(ExactSum::Limbs& limbs, double term) {
  ExactSum sum(limbs);
  sum.Add(term);
  limbs = sum.limbs();
}

double AverageScale(std::int64_t tokens) { return 1 / std::max(1.0, static_cast<double>(tokens)); }

double ClipFactor(double clip_grad, double norm) {
  return clip_grad == 0 ? 1 : std::min(1.0, clip_grad / (norm + 1e-6));
}

StepFailure FailureOf(const StepOutcome& outcome, const StepSums& sums) {
  if (sums.overflows > 0) return StepFailure::kOverflow;  // it leaves the losses undefined
  if (!std::isfinite(outcome.loss) || !std::isfinite(outcome.aux_loss)) return StepFailure::kLoss;
  return std::isfinite(outcome.grad_norm) ? StepFailure::kNone : StepFailure::kGradient;
}

}  // namespace

void HostOps::AddLosses(Queue& queue, const StepRule& rule, std::int64_t counted,
                        const Tensor& losses, const Tensor& aux_loss, const Tensor& sums,
                        const Tensor& mean) {
  CheckScalars(sums, kWordsOf<StepSums>);
  CKPT_CHECK(losses.dtype == aux_loss.dtype && aux_loss.num_elems() == 1);
  CKPT_CHECK(mean.dtype == DType::kFloat64 && mean.num_elems() == 1);
  RunOn(queue, [rule, counted, losses, aux_loss, sums, mean] {
    DispatchCompute(losses.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      double sum = 0;  // in order of token, so that it is the same on every mesh
      for (std::int64_t t = 0; t < losses.num_elems(); ++t) {
        sum += static_cast<double>(Load(losses.as<const T>()[t]));
      }
      const auto aux = static_cast<double>(Load(*aux_loss.as<const T>()));
      const double of_batch = counted > 0 ? sum / static_cast<double>(counted) : 0;
      StepSums& all = *sums.as<StepSums>();
      if (counted > 0) AddTo(all.loss, rule.per_token_loss ? sum : of_batch);
      AddTo(all.aux_loss, aux);
      const bool is_finite = std::isfinite(sum) && std::isfinite(aux);
      *mean.as<double>() = is_finite ? of_batch : std::numeric_limits<double>::quiet_NaN();
    });
  });
}

void HostOps::AverageOverTokens(Queue& queue, const Tensor& sums, const Tensor& update) {
  CheckScalars(sums, kWordsOf<StepSums>);
  CheckScalars(update, kWordsOf<UpdateScalars>);
  RunOn(queue, [sums, update] {
    update.as<UpdateScalars>()->scale = AverageScale(sums.as<const StepSums>()->tokens);
  });
}

void HostOps::AddSquares(Queue& queue, const Tensor& row_sums, const Tensor& update,
                         const Tensor& sums, const Tensor& outcome) {
  CheckScalars(update, kWordsOf<UpdateScalars>);
  CheckScalars(sums, kWordsOf<StepSums>);
  CheckScalars(outcome, kWordsOf<StepOutcome>);
  CKPT_CHECK(row_sums.dtype == DType::kFloat64);
  RunOn(queue, [this, row_sums, update, sums, outcome] {
    const auto* terms = row_sums.as<const double>();
    const double scale = update.as<const UpdateScalars>()->scale;
    const double factor = scale * scale;
    Mutex mutex;
    ExactSum total(sums.as<StepSums>()->squares);
    std::int64_t first_bad = row_sums.num_elems();
    // Exact, so the division among threads does not matter.
    parallel_.For(row_sums.num_elems(), kGrainTerms, [&](std::int64_t begin, std::int64_t end) {
      ExactSum part;
      for (std::int64_t i = begin; i < end; ++i) part.Add(factor * terms[i]);
      const auto* bad = std::find_if(terms + begin, terms + end,
                                     [](double term) { return !std::isfinite(term); });
      const MutexLock lock(mutex);
      total.Add(part);
      if (bad != terms + end) first_bad = std::min<std::int64_t>(first_bad, bad - terms);
    });
    sums.as<StepSums>()->squares = total.limbs();
    outcome.as<StepOutcome>()->bad_row = first_bad < row_sums.num_elems() ? first_bad : -1;
  });
}

void HostOps::DecideStep(Queue& queue, const StepRule& rule, const Tensor& sums,
                         const Tensor& has_failed, const Tensor& update, const Tensor& outcome) {
  CheckScalars(sums, kWordsOf<StepSums>);
  CheckScalars(update, kWordsOf<UpdateScalars>);
  CheckScalars(outcome, kWordsOf<StepOutcome>);
  RunOn(queue, [rule, sums, has_failed, update, outcome] {
    const StepSums& all = *sums.as<const StepSums>();
    UpdateScalars& scalars = *update.as<UpdateScalars>();
    StepOutcome& result = *outcome.as<StepOutcome>();
    const auto num_batches = static_cast<double>(rule.num_batches);
    const double divisor = rule.per_token_loss ? static_cast<double>(all.tokens) : num_batches;
    result.loss = divisor > 0 ? ExactSum(all.loss).Value() / divisor : 0;
    result.aux_loss = ExactSum(all.aux_loss).Value() / num_batches;
    result.grad_norm = std::sqrt(ExactSum(all.squares).Value());
    result.tokens = all.tokens;
    result.dropped = all.dropped;
    result.stop_votes = all.stop_votes;
    const auto* peaks = sums.as<const std::int64_t>() + kWordsOf<StepSums>;
    result.peak_bytes = 0;
    for (std::int64_t rank = 0; rank < sums.num_elems() - kWordsOf<StepSums>; ++rank) {
      result.peak_bytes = std::max(result.peak_bytes, peaks[rank]);
    }
    result.failure = FailureOf(result, all);
    if (has_failed) {
      auto& failed = *has_failed.as<std::int64_t>();
      if (failed != 0) result.failure = StepFailure::kEarlier;
      if (result.failure != StepFailure::kNone) failed = 1;
    }
    scalars.clip = ClipFactor(rule.clip_grad, result.grad_norm);
    scalars.skip = result.failure == StepFailure::kNone ? 0 : 1;
    result.scale = scalars.scale;
    result.clip = scalars.clip;
  });
}

void HostOps::EnterPhase(Queue& queue, StepPhase phase, const Tensor& times) {
  CheckScalars(times, kWordsOf<PhaseTimes>);
  RunOn(queue, [phase, times] {
    PhaseTimes& all = *times.as<PhaseTimes>();
    const std::int64_t now = std::chrono::duration_cast<std::chrono::nanoseconds>(
                                 std::chrono::steady_clock::now().time_since_epoch())
                                 .count();
    if (all.since_ns != 0) all.ns[static_cast<std::size_t>(all.phase)] += now - all.since_ns;
    all.phase = static_cast<std::int64_t>(phase);
    all.since_ns = now;
  });
}

}  // namespace ckpt::trainer

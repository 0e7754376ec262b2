// Keeps experts evenly used: auxiliary losses, and the bias that is updated from counts.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/check.h"
#include "trainer/device/cpu/host_device.h"
#include "trainer/device/cpu/lane_sum.h"
#include "trainer/ops/cpu/internal/exp.h"
#include "trainer/ops/cpu/internal/host_ops_impl.h"
#include "trainer/ops/cpu/internal/numeric.h"
#include "trainer/ops/cpu/internal/routing.h"
#include "trainer/ops/cpu/internal/row_blocks.h"
#include "trainer/ops/cpu/internal/vector_loop.h"

namespace ckpt::trainer {
namespace {

template <typename S>
S RouterLogSumExp(const S* logits, std::int64_t count) {
  const S largest = *std::max_element(logits, logits + count);
  return largest +
         std::log(LaneSum<S>(count, [=](std::int64_t e) { return Exp(logits[e] - largest); }));
}

// How often experts are chosen in each segment. A token is balanced with the routed tokens of its
// segment.
struct SegmentLoads {
  std::vector<std::int64_t> counts;  // [segments, E]: how often each expert is chosen
  std::vector<std::int64_t> tokens;  // [segments]
  std::int64_t all_tokens = 0;
  std::int64_t num_segments = 0;  // segments with at least one routed token
};

// A segment consists of `segment_rows` rows of experts [rows, K].
SegmentLoads LoadsBySegment(const Tensor& experts, const RouterShape& shape,
                            std::int64_t segment_rows) {
  const auto num_segments = static_cast<std::size_t>(shape.tokens / segment_rows);
  SegmentLoads loads;
  loads.counts.resize(num_segments * static_cast<std::size_t>(shape.experts));
  loads.tokens.resize(num_segments);
  for (std::int64_t t = 0; t < shape.tokens; ++t) {
    const auto* chosen = experts.as<const std::int32_t>() + t * shape.topk;
    if (!IsRouted(chosen)) continue;
    const std::int64_t segment = t / segment_rows;
    if (++loads.tokens[static_cast<std::size_t>(segment)] == 1) ++loads.num_segments;
    ++loads.all_tokens;
    for (std::int64_t k = 0; k < shape.topk; ++k) {
      CKPT_CHECK(chosen[k] >= 0 && chosen[k] < shape.experts);
      ++loads.counts[static_cast<std::size_t>(segment * shape.experts + chosen[k])];
    }
  }
  return loads;
}

// The auxiliary losses of one token: its share of the value, and its gradient. Let n_e be the uses
// of expert e among the tokens of the segment. The balance loss is a sum over tokens of Σ_e p_e·g_e
// with g_e = factor·n_e. Counts have no gradient, so dp_e = g_e.
template <typename S>
class TokenAuxLoss {
 public:
  TokenAuxLoss(const RouterForm& form, const AuxLossForm& aux, const RouterShape& shape,
               std::int64_t routed_tokens, double gradient_scale)
      : is_sigmoid_(form.score == ScoreFunction::kSigmoid),
        num_experts_(shape.experts),
        z_factor_(aux.z_coefficient / static_cast<double>(routed_tokens)),
        gradient_scale_(static_cast<S>(gradient_scale)),
        p_(static_cast<std::size_t>(shape.experts)),
        dp_(static_cast<std::size_t>(shape.experts)),
        dscores_(static_cast<std::size_t>(shape.experts)) {}

  double AddBalance(const S* scores, const std::int64_t* counts, double factor, S* dlogits) {
    const S sum = is_sigmoid_
                      ? LaneSum<S>(num_experts_, [=](std::int64_t e) { return scores[e]; }) +
                            static_cast<S>(kTinySum)
                      : S{1};
    double value = 0;
    for (std::int64_t e = 0; e < num_experts_; ++e) {
      const auto at = static_cast<std::size_t>(e);
      const double count_factor = factor * static_cast<double>(counts[e]);
      p_[at] = scores[e] / sum;
      dp_[at] = static_cast<S>(count_factor) * gradient_scale_;
      value += static_cast<double>(p_[at]) * count_factor;
    }
    if (dlogits == nullptr) return value;
    if (is_sigmoid_) {
      const S mean = LaneSum<S>(
          num_experts_, [p = p_.data(), dp = dp_.data()](std::int64_t e) { return p[e] * dp[e]; });
      for (std::size_t e = 0; e < dp_.size(); ++e) dscores_[e] = (dp_[e] - mean) / sum;
      AddSigmoidBackward(scores, dscores_.data(), num_experts_, dlogits);
    } else {
      AddSoftmaxBackward(p_.data(), dp_.data(), num_experts_, dlogits);
    }
    return value;
  }

  double AddZ(const S* logits, S* dlogits) {
    const S lse = RouterLogSumExp(logits, num_experts_);
    if (dlogits != nullptr) {
      const S slope = static_cast<S>(2 * z_factor_) * lse * gradient_scale_;
      ForEach(0, num_experts_, [=](std::int64_t e) { dlogits[e] += slope * Exp(logits[e] - lse); });
    }
    return z_factor_ * static_cast<double>(lse) * static_cast<double>(lse);
  }

 private:
  const bool is_sigmoid_;
  const std::int64_t num_experts_;
  const double z_factor_;
  const S gradient_scale_;
  std::vector<S> p_;
  std::vector<S> dp_;
  std::vector<S> dscores_;
};

}  // namespace

void HostOps::RouterAuxLoss(Queue& queue, const RouterForm& form, const AuxLossForm& aux,
                            const Tensor& logits, const Tensor& scores, const Tensor& experts,
                            double gradient_scale, const Tensor& loss, const Tensor& dlogits) {
  const RouterShape shape = RouterShapeOf(form, scores, experts);
  CheckSameLogits(logits, scores);
  if (dlogits) CheckSameLogits(logits, dlogits);
  CKPT_CHECK(!loss || (loss.dtype == logits.dtype && loss.num_elems() == 1));
  // The segment of a token is the whole micro-batch or its sequence.
  const std::int64_t segment_rows = aux.kind == AuxLoss::kSequence ? aux.seq : shape.tokens;
  if (shape.tokens == 0) return;
  CKPT_CHECK(segment_rows > 0 && shape.tokens % segment_rows == 0);
  RunOn(queue, [this, form, aux, logits, scores, experts, gradient_scale, loss, dlogits, shape,
                segment_rows] {
    const SegmentLoads loads = LoadsBySegment(experts, shape, segment_rows);
    const auto factor_of = [&](std::int64_t segment) {
      const auto tokens = static_cast<double>(loads.tokens[static_cast<std::size_t>(segment)]);
      return aux.coefficient * static_cast<double>(shape.experts) /
             (static_cast<double>(shape.topk) * tokens * tokens *
              static_cast<double>(loads.num_segments));
    };
    std::vector<double> values(static_cast<std::size_t>(shape.tokens));
    DispatchStatistics(logits.dtype, [&](auto tag) {
      using S = typename decltype(tag)::type;
      parallel_.For(
          shape.tokens, GrainRows(shape.experts), [&](std::int64_t begin, std::int64_t end) {
            TokenAuxLoss<S> token_loss(form, aux, shape, loads.all_tokens, gradient_scale);
            for (std::int64_t t = begin; t < end; ++t) {
              if (!IsRouted(experts.as<const std::int32_t>() + t * shape.topk)) continue;
              const std::int64_t segment = t / segment_rows;
              const std::int64_t at = t * shape.experts;
              S* dlogit = dlogits ? dlogits.as<S>() + at : nullptr;
              double& value = values[static_cast<std::size_t>(t)];
              if (aux.kind != AuxLoss::kNone) {
                value += token_loss.AddBalance(scores.as<const S>() + at,
                                               loads.counts.data() + segment * shape.experts,
                                               factor_of(segment), dlogit);
              }
              if (aux.z_coefficient != 0)
                value += token_loss.AddZ(logits.as<const S>() + at, dlogit);
            }
          });
      double total = 0;
      for (const double value : values) total += value;
      if (loss) *loss.as<S>() += static_cast<S>(total);
    });
  });
}

void HostOps::CountRows(Queue& queue, const Tensor& offsets, std::int64_t segments,
                        const Tensor& counts) {
  CKPT_CHECK(offsets.dtype == DType::kInt32 && counts.dtype == DType::kInt64 && segments > 0);
  CKPT_CHECK(offsets.num_elems() == counts.num_elems() * segments + 1);
  RunOn(queue, [offsets, segments, counts] {
    const auto* offset = offsets.as<const std::int32_t>();
    auto* count = counts.as<std::int64_t>();
    for (std::int64_t e = 0; e < counts.num_elems(); ++e) {
      count[e] += offset[(e + 1) * segments] - offset[e * segments];
    }
  });
}

void HostOps::UpdateExpertBias(Queue& queue, const Tensor& counts, double rate,
                               const Tensor& update, const Tensor& bias) {
  CKPT_CHECK(counts.dtype == DType::kInt64 && counts.num_elems() == bias.num_elems());
  RunOn(queue, [counts, rate, update, bias] {
    if (update.as<const UpdateScalars>()->skip != 0) return;
    DispatchStatistics(bias.dtype, [&](auto tag) {
      using S = typename decltype(tag)::type;
      const auto* count = counts.as<const std::int64_t>();
      const std::int64_t num_experts = counts.num_elems();
      std::int64_t total = 0;
      for (std::int64_t e = 0; e < num_experts; ++e) total += count[e];
      for (std::int64_t e = 0; e < num_experts; ++e) {
        // The sign of total/E - count, computed in integers.
        const std::int64_t lack = total - count[e] * num_experts;
        if (lack != 0) bias.as<S>()[e] += static_cast<S>(lack > 0 ? rate : -rate);
      }
    });
  });
}

}  // namespace ckpt::trainer

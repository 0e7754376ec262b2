// How tokens choose experts, the losses that keep the choice balanced, and their backward.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/base/check.h"
#include "trainer/device/host_device.h"
#include "trainer/ops/cpu/exp.h"
#include "trainer/ops/cpu/host_ops_impl.h"
#include "trainer/ops/cpu/numeric.h"
#include "trainer/ops/cpu/row_blocks.h"
#include "trainer/ops/cpu/vector_loop.h"

namespace ckpt::trainer {
namespace {

// Keeps a sum of sigmoid scores, all of them tiny, from dividing by zero; the value is Transformers' and Megatron's.
constexpr double kTinySum = 1e-20;

struct RouterShape {
  std::int64_t tokens = 0;   // T
  std::int64_t experts = 0;  // E
  std::int64_t topk = 0;     // K
};

RouterShape ShapeOf(const RouterForm& form, const Tensor& scores, const Tensor& experts) {
  CKPT_CHECK(scores.ndim == 2 && experts.ndim == 2 && experts.dtype == DType::kInt32);
  const RouterShape shape{scores.dim(0), scores.dim(1), experts.dim(1)};
  CKPT_CHECK(experts.dim(0) == shape.tokens && form.topk == shape.topk && shape.topk > 0);
  CKPT_CHECK(form.num_groups > 0 && shape.experts % form.num_groups == 0);
  CKPT_CHECK(form.group_topk > 0 && form.group_topk <= form.num_groups);
  CKPT_CHECK(shape.topk <= shape.experts / form.num_groups * form.group_topk);
  return shape;
}

void CheckLike(const Tensor& a, const Tensor& b) {
  CKPT_CHECK(a.dtype == b.dtype && a.num_elems() == b.num_elems());
}

// Statistics are float32 or float64.
template <typename Body>
void DispatchStatistics(DType dtype, Body&& body) {
  if (dtype == DType::kFloat64) return body(TypeTag<double>{});
  CKPT_CHECK(dtype == DType::kFloat32);
  body(TypeTag<float>{});
}

template <typename S>
S LogSumExp(const S* logits, std::int64_t count) {
  const S largest = *std::max_element(logits, logits + count);
  return largest +
         std::log(LaneSum<S>(count, [=](std::int64_t e) { return Exp(logits[e] - largest); }));
}

template <typename S>
void Softmax(const S* logits, std::int64_t count, S* probabilities) {
  const S largest = *std::max_element(logits, logits + count);
  ForEach(0, count, [=](std::int64_t e) { probabilities[e] = Exp(logits[e] - largest); });
  const S sum = LaneSum<S>(count, [=](std::int64_t e) { return probabilities[e]; });
  ForEach(0, count, [=](std::int64_t e) { probabilities[e] /= sum; });
}

// Writes the indices of the `k` largest of values[0 … count) to `chosen`, largest first, of equal ones the lowest first.
// Only those that `is_eligible` are looked at. REQUIRES: at least k are.
template <typename S, typename Eligible, typename Index>
void ChooseLargest(const S* values, std::int64_t count, const Eligible& is_eligible, std::int64_t k,
                   Index* chosen) {
  for (std::int64_t slot = 0; slot < k; ++slot) {
    std::int64_t best = -1;
    for (std::int64_t i = 0; i < count; ++i) {
      if (!is_eligible(i) || (best >= 0 && !(values[i] > values[best]))) continue;
      if (std::find(chosen, chosen + slot, static_cast<Index>(i)) == chosen + slot) best = i;
    }
    chosen[slot] = static_cast<Index>(best);
  }
}

// Chooses the experts of one token after another.
template <typename S>
class ExpertChooser {
 public:
  ExpertChooser(const RouterForm& form, std::int64_t num_experts)
      : form_(form),
        num_experts_(num_experts),
        group_size_(num_experts / form.num_groups),
        group_scores_(static_cast<std::size_t>(form.num_groups)),
        groups_(static_cast<std::size_t>(form.group_topk)) {}

  void Choose(const S* values, std::int32_t* chosen) {
    if (form_.num_groups == 1) {
      return ChooseLargest(
          values, num_experts_, [](std::int64_t) { return true; }, form_.topk, chosen);
    }
    for (std::int64_t group = 0; group < form_.num_groups; ++group) {
      group_scores_[static_cast<std::size_t>(group)] = GroupScoreOf(values + group * group_size_);
    }
    ChooseLargest(
        group_scores_.data(), form_.num_groups, [](std::int64_t) { return true; }, form_.group_topk,
        groups_.data());
    const auto is_eligible = [this](std::int64_t expert) {
      return std::find(groups_.begin(), groups_.end(), expert / group_size_) != groups_.end();
    };
    ChooseLargest(values, num_experts_, is_eligible, form_.topk, chosen);
  }

 private:
  [[nodiscard]] S GroupScoreOf(const S* values) const {
    S best = -std::numeric_limits<S>::infinity();
    S second = best;
    for (std::int64_t i = 0; i < group_size_; ++i) {
      if (values[i] > best) {
        second = best;
        best = values[i];
      } else if (values[i] > second) {
        second = values[i];
      }
    }
    const bool is_sum = form_.group_score == GroupScore::kTopTwoSum && group_size_ > 1;
    return is_sum ? best + second : best;
  }

  const RouterForm& form_;
  const std::int64_t num_experts_;
  const std::int64_t group_size_;
  std::vector<S> group_scores_;
  std::vector<std::int64_t> groups_;
};

// Whether a token's weights are its chosen scores over their sum. Over the chosen logits alone a softmax is that of all
// logits so divided, whatever `normalize` says.
bool IsNormalized(const RouterForm& form) {
  return form.normalize || form.score == ScoreFunction::kSoftmaxTopK;
}

template <typename S>
S SumOfChosen(const RouterForm& form, const S* scores, const std::int32_t* chosen) {
  S sum = 0;
  for (std::int64_t k = 0; k < form.topk; ++k) sum += scores[chosen[k]];
  return form.score == ScoreFunction::kSigmoid ? sum + static_cast<S>(kTinySum) : sum;
}

template <typename S>
void WeighChosen(const RouterForm& form, const S* logits, const S* scores,
                 const std::int32_t* chosen, S* weights) {
  if (form.score == ScoreFunction::kSoftmaxTopK) {
    for (std::int64_t k = 0; k < form.topk; ++k) weights[k] = logits[chosen[k]];
    Softmax(weights, form.topk, weights);
  } else {
    const S sum = form.normalize ? SumOfChosen(form, scores, chosen) : S{1};
    for (std::int64_t k = 0; k < form.topk; ++k) weights[k] = scores[chosen[k]] / sum;
  }
  for (std::int64_t k = 0; k < form.topk; ++k) weights[k] *= static_cast<S>(form.scaling);
}

// dscores [E] of one token, from the gradient of its weights. Zero but at the chosen.
template <typename S>
void ScoresBackward(const RouterForm& form, const S* scores, const std::int32_t* chosen,
                    const S* dweights, std::int64_t num_experts, S* dscores) {
  std::fill(dscores, dscores + num_experts, S{0});
  const auto scaling = static_cast<S>(form.scaling);
  if (!IsNormalized(form)) {
    for (std::int64_t k = 0; k < form.topk; ++k) dscores[chosen[k]] = scaling * dweights[k];
    return;
  }
  const S sum = SumOfChosen(form, scores, chosen);
  S mean = 0;
  for (std::int64_t k = 0; k < form.topk; ++k) mean += scores[chosen[k]] / sum * dweights[k];
  for (std::int64_t k = 0; k < form.topk; ++k) {
    dscores[chosen[k]] = scaling * (dweights[k] - mean) / sum;
  }
}

// dlogits [E] += of a softmax: p·(dp - Σ p·dp). dlogits may not be dp.
template <typename S>
void AddSoftmaxBackward(const S* p, const S* dp, std::int64_t count, S* dlogits) {
  const S mean = LaneSum<S>(count, [=](std::int64_t e) { return p[e] * dp[e]; });
  ForEach(0, count, [=](std::int64_t e) { dlogits[e] += p[e] * (dp[e] - mean); });
}

// dlogits [E] += of sigmoids.
template <typename S>
void AddSigmoidBackward(const S* scores, const S* dscores, std::int64_t count, S* dlogits) {
  ForEach(0, count,
          [=](std::int64_t e) { dlogits[e] += dscores[e] * scores[e] * (S{1} - scores[e]); });
}

// How often each expert occurs in experts [rows, K], a row of counts [E] per segment of `segment_rows` rows.
std::vector<std::int64_t> CountsBySegment(const Tensor& experts, const RouterShape& shape,
                                          std::int64_t segment_rows) {
  std::vector<std::int64_t> counts(
      static_cast<std::size_t>(shape.tokens / segment_rows * shape.experts));
  const auto* chosen = experts.as<const std::int32_t>();
  for (std::int64_t slot = 0; slot < shape.tokens * shape.topk; ++slot) {
    CKPT_CHECK(chosen[slot] >= 0 && chosen[slot] < shape.experts);
    const std::int64_t segment = slot / shape.topk / segment_rows;
    ++counts[static_cast<std::size_t>(segment * shape.experts + chosen[slot])];
  }
  return counts;
}

// The auxiliary losses of one token: its share of their value, and its gradient. With n_e the uses of expert e among the
// tokens that it is balanced with, the balance loss is a sum over tokens of Σ_e p_e·g_e, g_e = factor·n_e, and so
// dp_e = g_e; counts have no gradient.
template <typename S>
class TokenAuxLoss {
 public:
  TokenAuxLoss(const RouterForm& form, const AuxLossForm& aux, const RouterShape& shape,
               double gradient_scale)
      : is_sigmoid_(form.score == ScoreFunction::kSigmoid),
        num_experts_(shape.experts),
        z_factor_(aux.z_coefficient / static_cast<double>(shape.tokens)),
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
    const S lse = LogSumExp(logits, num_experts_);
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

void HostOps::Router(Queue& queue, const RouterForm& form, const Tensor& logits,
                     const Tensor& expert_bias, const Tensor& scores, const Tensor& experts,
                     const Tensor& weights) {
  const RouterShape shape = ShapeOf(form, scores, experts);
  CheckLike(logits, scores);
  CKPT_CHECK(weights.dtype == scores.dtype && weights.num_elems() == experts.num_elems());
  if (expert_bias) {
    CKPT_CHECK(expert_bias.dtype == scores.dtype && expert_bias.num_elems() == shape.experts);
  }
  RunOn(queue, [this, form, logits, expert_bias, scores, experts, weights, shape] {
    DispatchStatistics(logits.dtype, [&](auto tag) {
      using S = typename decltype(tag)::type;
      parallel_.For(
          shape.tokens, GrainRows(shape.experts), [&](std::int64_t begin, std::int64_t end) {
            ExpertChooser<S> chooser(form, shape.experts);
            std::vector<S> values(static_cast<std::size_t>(shape.experts));
            for (std::int64_t t = begin; t < end; ++t) {
              const S* row = logits.as<const S>() + t * shape.experts;
              S* score = scores.as<S>() + t * shape.experts;
              std::int32_t* chosen = experts.as<std::int32_t>() + t * shape.topk;
              WithWidestVectors([=, &form] {
                if (form.score == ScoreFunction::kSigmoid) {
                  ForEach(0, shape.experts,
                          [=](std::int64_t e) { score[e] = S{1} / (S{1} + Exp(-row[e])); });
                } else {
                  Softmax(row, shape.experts, score);
                }
              });
              const S* value = form.score == ScoreFunction::kSoftmaxTopK ? row : score;
              if (expert_bias) {
                const S* bias = expert_bias.as<const S>();
                std::transform(value, value + shape.experts, bias, values.begin(), std::plus<S>());
                value = values.data();
              }
              chooser.Choose(value, chosen);
              WeighChosen(form, row, score, chosen, weights.as<S>() + t * shape.topk);
            }
          });
    });
  });
}

void HostOps::RouterBackward(Queue& queue, const RouterForm& form, const Tensor& scores,
                             const Tensor& experts, const Tensor& dweights, const Tensor& dlogits) {
  const RouterShape shape = ShapeOf(form, scores, experts);
  CheckLike(scores, dlogits);
  CKPT_CHECK(dweights.dtype == scores.dtype && dweights.num_elems() == experts.num_elems());
  RunOn(queue, [this, form, scores, experts, dweights, dlogits, shape] {
    DispatchStatistics(scores.dtype, [&](auto tag) {
      using S = typename decltype(tag)::type;
      parallel_.For(
          shape.tokens, GrainRows(shape.experts), [&](std::int64_t begin, std::int64_t end) {
            std::vector<S> dscores(static_cast<std::size_t>(shape.experts));
            WithWidestVectors([&] {
              for (std::int64_t t = begin; t < end; ++t) {
                const S* score = scores.as<const S>() + t * shape.experts;
                S* dlogit = dlogits.as<S>() + t * shape.experts;
                ScoresBackward(form, score, experts.as<const std::int32_t>() + t * shape.topk,
                               dweights.as<const S>() + t * shape.topk, shape.experts,
                               dscores.data());
                std::fill(dlogit, dlogit + shape.experts, S{0});
                if (form.score == ScoreFunction::kSigmoid) {
                  AddSigmoidBackward(score, dscores.data(), shape.experts, dlogit);
                } else {
                  AddSoftmaxBackward(score, dscores.data(), shape.experts, dlogit);
                }
              }
            });
          });
    });
  });
}

void HostOps::RouterAuxLoss(Queue& queue, const RouterForm& form, const AuxLossForm& aux,
                            const Tensor& logits, const Tensor& scores, const Tensor& experts,
                            double gradient_scale, const Tensor& loss, const Tensor& dlogits) {
  const RouterShape shape = ShapeOf(form, scores, experts);
  CheckLike(logits, scores);
  if (dlogits) CheckLike(logits, dlogits);
  CKPT_CHECK(loss.dtype == logits.dtype && loss.num_elems() == 1);
  // Tokens are balanced with those of their segment: the whole micro-batch, or their sequence.
  const std::int64_t segment_rows = aux.kind == AuxLoss::kSequence ? aux.seq : shape.tokens;
  if (shape.tokens == 0) return;
  CKPT_CHECK(segment_rows > 0 && shape.tokens % segment_rows == 0);
  RunOn(queue, [this, form, aux, logits, scores, experts, gradient_scale, loss, dlogits, shape,
                segment_rows] {
    const auto tokens = static_cast<double>(segment_rows);
    const auto num_segments = static_cast<double>(shape.tokens / segment_rows);
    const double factor = aux.coefficient * static_cast<double>(shape.experts) /
                          (static_cast<double>(shape.topk) * tokens * tokens * num_segments);
    const std::vector<std::int64_t> counts = CountsBySegment(experts, shape, segment_rows);
    std::vector<double> values(static_cast<std::size_t>(shape.tokens));
    DispatchStatistics(logits.dtype, [&](auto tag) {
      using S = typename decltype(tag)::type;
      parallel_.For(
          shape.tokens, GrainRows(shape.experts), [&](std::int64_t begin, std::int64_t end) {
            TokenAuxLoss<S> token_loss(form, aux, shape, gradient_scale);
            for (std::int64_t t = begin; t < end; ++t) {
              const std::int64_t at = t * shape.experts;
              S* dlogit = dlogits ? dlogits.as<S>() + at : nullptr;
              double& value = values[static_cast<std::size_t>(t)];
              if (aux.kind != AuxLoss::kNone) {
                value += token_loss.AddBalance(scores.as<const S>() + at,
                                               counts.data() + t / segment_rows * shape.experts,
                                               factor, dlogit);
              }
              if (aux.z_coefficient != 0)
                value += token_loss.AddZ(logits.as<const S>() + at, dlogit);
            }
          });
      double total = 0;
      for (const double value : values) total += value;
      *loss.as<S>() += static_cast<S>(total);
    });
  });
}

void HostOps::CountExperts(Queue& queue, const Tensor& experts, const Tensor& counts) {
  CKPT_CHECK(experts.dtype == DType::kInt32 && counts.dtype == DType::kInt64);
  RunOn(queue, [experts, counts] {
    const auto* chosen = experts.as<const std::int32_t>();
    auto* count = counts.as<std::int64_t>();
    for (std::int64_t slot = 0; slot < experts.num_elems(); ++slot) {
      CKPT_CHECK(chosen[slot] >= 0 && chosen[slot] < counts.num_elems());
      ++count[chosen[slot]];
    }
  });
}

void HostOps::UpdateExpertBias(Queue& queue, const Tensor& counts, double rate,
                               const Tensor& bias) {
  CKPT_CHECK(counts.dtype == DType::kInt64 && counts.num_elems() == bias.num_elems());
  RunOn(queue, [counts, rate, bias] {
    DispatchStatistics(bias.dtype, [&](auto tag) {
      using S = typename decltype(tag)::type;
      const auto* count = counts.as<const std::int64_t>();
      const std::int64_t num_experts = counts.num_elems();
      std::int64_t total = 0;
      for (std::int64_t e = 0; e < num_experts; ++e) total += count[e];
      for (std::int64_t e = 0; e < num_experts; ++e) {
        // sign(total/E - count) in integers.
        const std::int64_t lack = total - count[e] * num_experts;
        if (lack != 0) bias.as<S>()[e] += static_cast<S>(lack > 0 ? rate : -rate);
      }
    });
  });
}

}  // namespace ckpt::trainer

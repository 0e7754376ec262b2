// How tokens choose experts, and its backward.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
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
void Softmax(const S* logits, std::int64_t count, S* probabilities) {
  const S largest = *std::max_element(logits, logits + count);
  ForEach(0, count, [=](std::int64_t e) { probabilities[e] = Exp(logits[e] - largest); });
  const S sum = LaneSum<S>(count, [=](std::int64_t e) { return probabilities[e]; });
  ForEach(0, count, [=](std::int64_t e) { probabilities[e] /= sum; });
}

// Writes the indices of the `k` largest of values[0 … count) to `chosen`, largest first; of equal
// values, the lowest index first. Considers only indices for which `is_eligible` is true. REQUIRES:
// there are at least k of them.
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

// Chooses the experts of tokens, one token at a time.
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

// Whether a token's weights are its chosen scores divided by their sum. The softmax over the chosen
// logits always equals the softmax over all logits divided in this way, so there `normalize` has no
// effect.
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

// dscores [E] of one token, from the gradient of its weights. Zero except at the chosen experts.
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

}  // namespace

void HostOps::Router(Queue& queue, const RouterForm& form, const Tensor& logits,
                     const Tensor& expert_bias, const Tensor& positions, const Tensor& scores,
                     const Tensor& experts, const Tensor& weights) {
  const RouterShape shape = RouterShapeOf(form, scores, experts);
  CheckSameLogits(logits, scores);
  CKPT_CHECK(weights.dtype == scores.dtype && weights.num_elems() == experts.num_elems());
  if (expert_bias) {
    CKPT_CHECK(expert_bias.dtype == scores.dtype && expert_bias.num_elems() == shape.experts);
  }
  if (positions) {
    CKPT_CHECK(positions.dtype == DType::kInt32 && positions.num_elems() == shape.tokens);
  }
  CKPT_CHECK(!form.is_assigned || (!expert_bias && !positions));
  RunOn(queue, [this, form, logits, expert_bias, positions, scores, experts, weights, shape] {
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
              S* weight = weights.as<S>() + t * shape.topk;
              const bool is_padding = form.is_assigned ? !IsRouted(chosen)
                                      : positions      ? positions.as<const std::int32_t>()[t] < 0
                                                       : false;
              if (is_padding) {
                std::fill_n(score, shape.experts, S{0});
                std::fill_n(chosen, shape.topk, kNoExpert);
                std::fill_n(weight, shape.topk, S{0});
                continue;
              }
              WithWidestVectors([=, &form] {
                if (form.score == ScoreFunction::kSigmoid) {
                  ForEach(0, shape.experts,
                          [=](std::int64_t e) { score[e] = S{1} / (S{1} + Exp(-row[e])); });
                } else {
                  Softmax(row, shape.experts, score);
                }
              });
              if (!form.is_assigned) {
                const S* value = form.score == ScoreFunction::kSoftmaxTopK ? row : score;
                if (expert_bias) {
                  const S* bias = expert_bias.as<const S>();
                  std::transform(value, value + shape.experts, bias, values.begin(),
                                 std::plus<S>());
                  value = values.data();
                }
                chooser.Choose(value, chosen);
              }
              WeighChosen(form, row, score, chosen, weight);
            }
          });
    });
  });
}

void HostOps::RouterBackward(Queue& queue, const RouterForm& form, const Tensor& scores,
                             const Tensor& experts, const Tensor& dweights, const Tensor& dlogits) {
  const RouterShape shape = RouterShapeOf(form, scores, experts);
  CheckSameLogits(scores, dlogits);
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
                const auto* chosen = experts.as<const std::int32_t>() + t * shape.topk;
                std::fill(dlogit, dlogit + shape.experts, S{0});
                if (!IsRouted(chosen)) continue;
                ScoresBackward(form, score, chosen, dweights.as<const S>() + t * shape.topk,
                               shape.experts, dscores.data());
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

}  // namespace ckpt::trainer

// NaiveMoe: the forward of a mixture of experts token by token, straight from the definitions.
#ifndef CKPT_TESTS_TRAINER_MODEL_NAIVE_MOE_H_
#define CKPT_TESTS_TRAINER_MODEL_NAIVE_MOE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "tests/trainer/model/moe_runner.h"
#include "trainer/model/model_config.h"

namespace ckpt::testing {

struct NaiveMoeValues {
  std::vector<double> y;
  double aux_loss = 0;
  std::vector<double> counts;
};

class NaiveMoe {
 public:
  using Row = std::vector<double>;
  // The stored values of a parameter, "mlp.router.weight".
  using Weights = std::function<std::vector<double>(const std::string& name)>;

  NaiveMoe(const trainer::ModelConfig& config, Weights weights, std::vector<double> expert_bias)
      : config_(config),
        moe_(config.moe.value()),
        weights_(std::move(weights)),
        bias_(std::move(expert_bias)) {
    bias_.resize(static_cast<std::size_t>(moe_.num_experts));
  }

  [[nodiscard]] NaiveMoeValues Forward(const MoeBatch& batch) const {
    const auto num_experts = static_cast<std::size_t>(moe_.num_experts);
    std::vector<Token> tokens;
    for (std::int64_t t = 0; t < batch.tokens(); ++t) {
      const auto begin = batch.x.begin() + t * config_.hidden_size;
      tokens.push_back(Route(Row(begin, begin + config_.hidden_size)));
    }
    NaiveMoeValues values;
    values.aux_loss = AuxLossOf(tokens, batch.seq);
    values.counts.resize(num_experts);
    for (const Token& token : tokens) {
      for (const std::size_t expert : token.experts) ++values.counts[expert];
    }
    DropTokens(tokens, values.counts);
    for (const Token& token : tokens) {
      Row y(token.x.size());
      for (std::size_t k = 0; k < token.experts.size(); ++k) {
        const std::string number = std::to_string(token.experts[k]);
        Add(token.weights[k],
            FeedForward("mlp.experts.linear_fc1.weight" + number,
                        "mlp.experts.linear_fc2.weight" + number, token.x),
            y);
      }
      if (moe_.shared_expert_ffn_hidden_size > 0) {
        const double factor =
            moe_.shared_expert_gate
                ? Sigmoid(Product("mlp.shared_experts.gate_weight", token.x).front())
                : 1;
        Add(factor,
            FeedForward("mlp.shared_experts.linear_fc1.weight",
                        "mlp.shared_experts.linear_fc2.weight", token.x),
            y);
      }
      values.y.insert(values.y.end(), y.begin(), y.end());
    }
    return values;
  }

 private:
  struct Token {
    Row x, logits, probabilities;
    std::vector<std::size_t> experts;
    Row weights;  // 0 where dropped
  };

  static void Add(double factor, const Row& part, Row& sum) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += factor * part[i];
  }
  [[nodiscard]] Row Product(const std::string& name, const Row& x) const {
    const std::vector<double> matrix = weights_(name);
    Row y(matrix.size() / x.size());
    for (std::size_t i = 0; i < matrix.size(); ++i) {
      y[i / x.size()] += matrix[i] * x[i % x.size()];
    }
    return y;
  }
  static double Sigmoid(double value) { return 1 / (1 + std::exp(-value)); }
  static Row Softmax(Row values) {
    const double largest = *std::max_element(values.begin(), values.end());
    for (double& value : values) value = std::exp(value - largest);
    const double sum = std::accumulate(values.begin(), values.end(), 0.0);
    for (double& value : values) value /= sum;
    return values;
  }
  // Indices by falling value; equal ones in order.
  static std::vector<std::size_t> Ranked(const Row& values) {
    std::vector<std::size_t> order(values.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return values[a] > values[b]; });
    return order;
  }

  [[nodiscard]] Row FeedForward(const std::string& fc1, const std::string& fc2,
                                const Row& x) const {
    const Row projected = Product(fc1, x);
    Row activated;
    if (config_.activation == trainer::Activation::kGelu) {
      for (const double value : projected) {
        activated.push_back(value * 0.5 * std::erfc(-value / std::sqrt(2.0)));
      }
    } else {
      const std::size_t half = projected.size() / 2;
      for (std::size_t i = 0; i < half; ++i) {
        const double gate = projected[i];
        activated.push_back(gate / (1 + std::exp(-gate)) * projected[half + i]);
      }
    }
    return Product(fc2, activated);
  }

  // What experts are chosen by: those of groups that are out count as -∞.
  [[nodiscard]] Row Eligible(Row values) const {
    const auto num_groups = static_cast<std::size_t>(moe_.router.num_groups);
    const std::size_t size = values.size() / num_groups;
    Row group_scores;
    for (std::size_t group = 0; group < num_groups; ++group) {
      const auto begin = values.begin() + static_cast<std::ptrdiff_t>(group * size);
      Row members(begin, begin + static_cast<std::ptrdiff_t>(size));
      std::sort(members.rbegin(), members.rend());
      const bool is_sum = moe_.router.group_score == trainer::GroupScore::kTopTwoSum && size > 1;
      group_scores.push_back(is_sum ? members[0] + members[1] : members[0]);
    }
    const std::vector<std::size_t> best = Ranked(group_scores);
    for (std::size_t rank = static_cast<std::size_t>(moe_.router.group_topk); rank < num_groups;
         ++rank) {
      for (std::size_t i = 0; i < size; ++i) {
        values[best[rank] * size + i] = -std::numeric_limits<double>::infinity();
      }
    }
    return values;
  }

  [[nodiscard]] Token Route(const Row& x) const {
    using trainer::ScoreFunction;
    const trainer::RouterForm& form = moe_.router;
    Token token{.x = x,
                .logits = Product("mlp.router.weight", x),
                .probabilities = {},
                .experts = {},
                .weights = {}};
    Row scores = Softmax(token.logits);
    token.probabilities = scores;
    if (form.score == ScoreFunction::kSigmoid) {
      for (std::size_t e = 0; e < scores.size(); ++e) {
        scores[e] = Sigmoid(token.logits[e]);
      }
      const double sum = std::accumulate(scores.begin(), scores.end(), 0.0);
      for (std::size_t e = 0; e < scores.size(); ++e) token.probabilities[e] = scores[e] / sum;
    }
    Row selection = form.score == ScoreFunction::kSoftmaxTopK ? token.logits : scores;
    Add(1, bias_, selection);
    token.experts = Ranked(Eligible(selection));
    token.experts.resize(static_cast<std::size_t>(form.topk));
    for (const std::size_t expert : token.experts) token.weights.push_back(scores[expert]);
    if (form.normalize || form.score == ScoreFunction::kSoftmaxTopK) {
      const double sum = std::accumulate(token.weights.begin(), token.weights.end(), 0.0);
      for (double& weight : token.weights) weight /= sum;
    }
    for (double& weight : token.weights) weight *= form.scaling;
    return token;
  }

  [[nodiscard]] double AuxLossOf(const std::vector<Token>& tokens, std::int64_t seq) const {
    if (tokens.empty()) return 0;
    double loss = 0;
    for (const Token& token : tokens) {
      double sum = 0;
      for (const double logit : token.logits) sum += std::exp(logit);
      loss +=
          moe_.aux.z_coefficient * std::pow(std::log(sum), 2) / static_cast<double>(tokens.size());
    }
    if (moe_.aux.kind == trainer::AuxLoss::kNone) return loss;
    const std::size_t length = moe_.aux.kind == trainer::AuxLoss::kSequence
                                   ? static_cast<std::size_t>(seq)
                                   : tokens.size();
    const double num_segments = static_cast<double>(tokens.size() / length);
    for (std::size_t begin = 0; begin < tokens.size(); begin += length) {
      Row counts(tokens[0].logits.size());
      Row sums(counts.size());
      for (std::size_t t = begin; t < begin + length; ++t) {
        for (const std::size_t expert : tokens[t].experts) ++counts[expert];
        Add(1, tokens[t].probabilities, sums);
      }
      const double balance = std::inner_product(counts.begin(), counts.end(), sums.begin(), 0.0);
      loss += moe_.aux.coefficient * static_cast<double>(counts.size()) * balance /
              (static_cast<double>(moe_.router.topk) * static_cast<double>(length * length) *
               num_segments);
    }
    return loss;
  }

  // An expert with more choices than its capacity keeps the heaviest, or the first. Counts become
  // what is kept, or padded to.
  void DropTokens(std::vector<Token>& tokens, std::vector<double>& counts) const {
    if (!moe_.capacity_factor) return;
    const double mean = static_cast<double>(tokens.size()) * static_cast<double>(moe_.router.topk) /
                        static_cast<double>(moe_.num_experts);
    const auto capacity =
        std::min(static_cast<std::size_t>(std::ceil(mean * *moe_.capacity_factor)), tokens.size());
    for (double& count : counts) {
      const auto most = static_cast<double>(capacity);
      count = moe_.pad_to_capacity ? most : std::min(count, most);
    }
    for (std::size_t expert = 0; expert < static_cast<std::size_t>(moe_.num_experts); ++expert) {
      std::vector<double*> weights;
      for (Token& token : tokens) {
        for (std::size_t k = 0; k < token.experts.size(); ++k) {
          if (token.experts[k] == expert) weights.push_back(&token.weights[k]);
        }
      }
      if (moe_.drop_policy == trainer::DropPolicy::kProbability) {
        std::stable_sort(weights.begin(), weights.end(),
                         [](const double* a, const double* b) { return *a > *b; });
      }
      for (std::size_t i = capacity; i < weights.size(); ++i) *weights[i] = 0;
    }
  }

  const trainer::ModelConfig config_;
  const trainer::MoeConfig moe_;
  const Weights weights_;
  Row bias_;
};

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_TRAINER_MODEL_NAIVE_MOE_H_

#include <set>

#include "tests/conformance/ops_suite.h"

namespace ckpt::trainer {
namespace {

constexpr std::size_t kRouterTokens = 6;
constexpr std::size_t kRouterExperts = 8;

// The router by its definition, token by token.
struct Routed {
  Values scores;
  Values experts;
  Values weights;
};

Values SoftmaxOf(const Values& logits) {
  Values p;
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit);
  for (const double logit : logits) p.push_back(std::exp(logit) / sum);
  return p;
}

// The `k` largest of values among `eligible`, ties to the lowest.
std::vector<std::size_t> Largest(const Values& values, std::set<std::size_t> eligible,
                                 std::int64_t k) {
  std::vector<std::size_t> order(eligible.begin(), eligible.end());
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return values[a] > values[b]; });
  order.resize(static_cast<std::size_t>(k));
  return order;
}

void RouteToken(const RouterForm& form, const Values& logits, const Values& bias, Routed& routed) {
  Values scores = SoftmaxOf(logits);
  if (form.score == ScoreFunction::kSigmoid) {
    for (std::size_t e = 0; e < logits.size(); ++e) scores[e] = 1 / (1 + std::exp(-logits[e]));
  }
  Values values = form.score == ScoreFunction::kSoftmaxTopK ? logits : scores;
  for (std::size_t e = 0; e < values.size(); ++e) values[e] += bias[e];
  const auto groups = static_cast<std::size_t>(form.num_groups);
  const std::size_t size = values.size() / groups;
  Values group_scores;
  std::set<std::size_t> all_groups;
  for (std::size_t group = 0; group < groups; ++group) {
    Values members(values.begin() + static_cast<std::ptrdiff_t>(group * size),
                   values.begin() + static_cast<std::ptrdiff_t>((group + 1) * size));
    std::sort(members.rbegin(), members.rend());
    group_scores.push_back(
        members[0] + (form.group_score == GroupScore::kTopTwoSum && size > 1 ? members[1] : 0));
    all_groups.insert(group);
  }
  std::set<std::size_t> eligible;
  for (const std::size_t group : Largest(group_scores, all_groups, form.group_topk)) {
    for (std::size_t i = 0; i < size; ++i) eligible.insert(group * size + i);
  }
  const std::vector<std::size_t> chosen = Largest(values, eligible, form.topk);
  Values weights;
  for (const std::size_t e : chosen) weights.push_back(scores[e]);
  if (form.score == ScoreFunction::kSoftmaxTopK) {
    for (std::size_t k = 0; k < chosen.size(); ++k) weights[k] = logits[chosen[k]];
    weights = SoftmaxOf(weights);
  } else if (form.normalize) {
    double sum = form.score == ScoreFunction::kSigmoid ? 1e-20 : 0;
    for (const double weight : weights) sum += weight;
    for (double& weight : weights) weight /= sum;
  }
  routed.scores.insert(routed.scores.end(), scores.begin(), scores.end());
  for (const std::size_t e : chosen) routed.experts.push_back(static_cast<double>(e));
  for (const double weight : weights) routed.weights.push_back(weight * form.scaling);
}

Routed Route(const RouterForm& form, const Values& logits, const Values& bias) {
  Routed routed;
  for (std::size_t at = 0; at < logits.size(); at += kRouterExperts) {
    const auto first = logits.begin() + static_cast<std::ptrdiff_t>(at);
    RouteToken(form, Values(first, first + kRouterExperts), bias, routed);
  }
  return routed;
}

std::vector<RouterForm> Forms() {
  using enum ScoreFunction;
  return {
      {.score = kSoftmax, .topk = 2},
      {.score = kSoftmax, .topk = 3, .normalize = true},
      {.score = kSoftmax,
       .topk = 3,
       .num_groups = 4,
       .group_topk = 2,
       .group_score = GroupScore::kMax,
       .scaling = 16},
      {.score = kSoftmaxTopK, .topk = 2, .scaling = 0.5},
      {.score = kSoftmaxTopK, .topk = 1},
      {.score = kSigmoid, .topk = 1},
      {.score = kSigmoid,
       .topk = 4,
       .num_groups = 4,
       .group_topk = 2,
       .normalize = true,
       .scaling = 2.5},
      {.score = kSigmoid, .topk = 8, .normalize = true},
  };
}

// A draw whose logits are well apart, so that no small step changes a choice.
Values LogitsApart(std::mt19937_64& random) {
  Values logits;
  for (std::size_t t = 0; t < kRouterTokens; ++t) {
    Values row;
    for (std::size_t e = 0; e < kRouterExperts; ++e)
      row.push_back(0.43 * static_cast<double>(e) - 1.6);
    std::shuffle(row.begin(), row.end(), random);
    for (double& logit : row) logit += 0.01 * static_cast<double>(t);
    logits.insert(logits.end(), row.begin(), row.end());
  }
  return logits;
}

TEST_P(OpsSuite, RouterIsItsDefinitionForEveryForm) {
  for (const RouterForm& form : Forms()) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
      SCOPED_TRACE(::testing::Message() << "score " << static_cast<int>(form.score) << " topk "
                                        << form.topk << " " << DTypeName(dtype));
      const Values bias_values = Uniform(kRouterExperts, -0.3, 0.3);
      const auto logits =
          Make(dtype, {kRouterTokens, kRouterExperts}, Uniform(kRouterTokens * kRouterExperts));
      const auto bias = Make(dtype, {kRouterExperts}, bias_values);
      const auto scores = Poisoned(dtype, {kRouterTokens, kRouterExperts});
      const auto experts = Poisoned(DType::kInt32, {kRouterTokens, form.topk});
      const auto weights = Poisoned(dtype, {kRouterTokens, form.topk});
      ops().Router(queue(), form, logits, bias, Tensor(), scores, experts, weights);
      const Routed want = Route(form, Read(logits), Read(bias));
      const double tolerance = dtype == DType::kFloat64 ? 1e-14 : 1e-6;
      EXPECT_THAT(Read(scores), NearValues(want.scores, tolerance));
      EXPECT_EQ(Read(experts), want.experts);
      EXPECT_THAT(Read(weights), NearValues(want.weights, tolerance));
    }
  }
}

// The same choices, given in place of made, have the same scores and weights; so have others, by
// the definition; and a token without a choice has none.
TEST_P(OpsSuite, AnAssignedRouterWeighsTheExpertsItIsGiven) {
  for (RouterForm form : Forms()) {
    SCOPED_TRACE(::testing::Message()
                 << "score " << static_cast<int>(form.score) << " topk " << form.topk);
    const Values logit_values = LogitsApart(random());
    const Routed routed = Route(form, logit_values, Values(kRouterExperts, 0.0));
    const auto topk = static_cast<std::size_t>(form.topk);
    const auto logits = Make(DType::kFloat64, {kRouterTokens, kRouterExperts}, logit_values);
    // Every token takes the experts that the next one chose, and the last one takes none.
    Values given = routed.experts;
    std::rotate(given.begin(), given.begin() + form.topk, given.end());
    std::fill(given.end() - form.topk, given.end(), -1.0);
    const auto scores = Poisoned(DType::kFloat64, {kRouterTokens, kRouterExperts});
    const auto weights = Poisoned(DType::kFloat64, {kRouterTokens, form.topk});
    const auto run = [&](const Values& chosen) {
      const auto experts = Make(DType::kInt32, {kRouterTokens, form.topk}, chosen);
      form.is_assigned = true;
      ops().Router(queue(), form, logits, Tensor(), Tensor(), scores, experts, weights);
      EXPECT_EQ(Read(experts), chosen);
    };
    run(routed.experts);
    EXPECT_THAT(Read(scores), NearValues(routed.scores, 1e-14));
    EXPECT_THAT(Read(weights), NearValues(routed.weights, 1e-14));

    run(given);
    const Values weighed = Read(weights);
    for (std::size_t t = 0; t < kRouterTokens; ++t) {
      Values want(topk, 0.0);
      double sum = form.score == ScoreFunction::kSigmoid ? 1e-20 : 0;
      const bool normalizes = form.normalize || form.score == ScoreFunction::kSoftmaxTopK;
      for (std::size_t k = 0; t + 1 < kRouterTokens && k < topk; ++k) {
        const std::size_t at = t * kRouterExperts + static_cast<std::size_t>(given[t * topk + k]);
        // A softmax over the chosen logits is one over all, divided by its sum.
        want[k] = form.score == ScoreFunction::kSoftmaxTopK ? std::exp(logit_values[at])
                                                            : routed.scores[at];
        sum += want[k];
      }
      for (double& weight : want) weight *= form.scaling / (normalizes && sum > 0 ? sum : 1);
      const auto first = weighed.begin() + static_cast<std::ptrdiff_t>(t * topk);
      EXPECT_THAT(Values(first, first + form.topk), NearValues(want, 1e-13)) << t;
    }
    const Values all_scores = Read(scores);
    EXPECT_EQ(Values(all_scores.end() - kRouterExperts, all_scores.end()),
              Values(kRouterExperts, 0.0));
  }
}

// Many tokens are computed in parts, which does not change what each gets.
TEST_P(OpsSuite, RouterLogitsBackwardOfATokenDoesNotDependOnTheOthers) {
  constexpr std::int64_t kMany = 2500;
  constexpr std::int64_t kInputs = 12;
  constexpr std::int64_t kLogits = 6;
  const auto dlogits = Make(DType::kFloat64, {kMany, kLogits}, Uniform(kMany * kLogits));
  const auto x = Make(DType::kFloat64, {kMany, kInputs}, Uniform(kMany * kInputs));
  const auto weight = Make(DType::kFloat64, {kLogits, kInputs}, Uniform(kLogits * kInputs));
  const Values before = Uniform(kMany * kInputs);
  const auto whole = Make(DType::kFloat64, {kMany, kInputs}, before);
  ops().RouterLogitsBackward(queue(), dlogits, x, weight, whole, {});
  const auto parts = Make(DType::kFloat64, {kMany, kInputs}, before);
  for (std::int64_t first = 0; first < kMany; first += 100) {
    ops().RouterLogitsBackward(queue(), Tensor(dlogits).Rows(first, 100),
                               Tensor(x).Rows(first, 100), weight, Tensor(parts).Rows(first, 100),
                               {});
  }
  EXPECT_THAT(Read(whole), NearValues(Read(parts), 1e-14));
  EXPECT_NE(Read(whole), before);
}

TEST_P(OpsSuite, RouterLogitsBackwardOfManyTokensRoundsTheWeightsGradientOnce) {
  constexpr std::int64_t kMany = 4500;
  constexpr std::int64_t kInputs = 12;
  constexpr std::int64_t kLogits = 6;
  for (const auto& [gradient_dtype, tolerance] :
       {std::pair(DType::kFloat32, 1e-5), std::pair(DType::kBfloat16, 0x1p-8)}) {
    SCOPED_TRACE(DTypeName(gradient_dtype));
    const auto x = Make(DType::kBfloat16, {kMany, kInputs}, Uniform(kMany * kInputs));
    const auto weight = Make(DType::kBfloat16, {kLogits, kInputs}, Uniform(kLogits * kInputs));
    const auto dlogits = Make(DType::kFloat32, {kMany, kLogits}, Uniform(kMany * kLogits));
    const auto dx = Make(DType::kBfloat16, {kMany, kInputs}, Uniform(kMany * kInputs));
    const auto dweight = Poisoned(gradient_dtype, {kLogits, kInputs});
    const Values d = Read(dlogits), inputs = Read(x);
    Values want(kLogits * kInputs);
    for (std::size_t t = 0; t < kMany; ++t) {
      for (std::size_t e = 0; e < kLogits; ++e) {
        for (std::size_t h = 0; h < kInputs; ++h) {
          want[e * kInputs + h] += d[t * kLogits + e] * inputs[t * kInputs + h];
        }
      }
    }
    ops().RouterLogitsBackward(queue(), dlogits, x, weight, dx, Stored(dweight));
    EXPECT_THAT(Read(dweight), NearValues(want, tolerance));
    ops().RouterLogitsBackward(queue(), dlogits, x, weight, dx, Added(dweight));
    for (double& value : want) value *= 2;
    EXPECT_THAT(Read(dweight), NearValues(want, 2 * tolerance));
  }
}

TEST_P(OpsSuite, RouterGivesTiesToTheLowestIndexAndChoosesOnEvenIfNothingIsANumber) {
  const RouterForm form{.topk = 3, .num_groups = 4, .group_topk = 2};
  for (const double value : {0.0, std::nan("")}) {
    const auto logits = Make(DType::kFloat32, {1, 8}, Values(8, value));
    const auto scores = Poisoned(DType::kFloat32, {1, 8});
    const auto experts = Poisoned(DType::kInt32, {1, 3});
    const auto weights = Poisoned(DType::kFloat32, {1, 3});
    ops().Router(queue(), form, logits, Tensor(), Tensor(), scores, experts, weights);
    EXPECT_THAT(Read(experts), ::testing::ElementsAre(0, 1, 2));
  }
}

TEST_P(OpsSuite, RouterBackwardIsTheSlopeOfTheForward) {
  for (const RouterForm& form : Forms()) {
    SCOPED_TRACE(::testing::Message()
                 << "score " << static_cast<int>(form.score) << " topk " << form.topk);
    const Values logits = LogitsApart(random());
    const Routed routed = Route(form, logits, Values(kRouterExperts, 0.0));
    const Values dweights = Uniform(static_cast<std::int64_t>(routed.weights.size()));
    const auto dlogits = Poisoned(DType::kFloat64, {kRouterTokens, kRouterExperts});
    const auto scores = Make(DType::kFloat64, {kRouterTokens, kRouterExperts}, routed.scores);
    const auto experts = Make(DType::kInt32, {kRouterTokens, form.topk}, routed.experts);
    const auto dweights_t = Make(DType::kFloat64, {kRouterTokens, form.topk}, dweights);
    ops().RouterBackward(queue(), form, scores, experts, dweights_t, dlogits);
    const Values want = NumericGradient(logits, [&](const Values& moved) {
      return Dot(Route(form, moved, Values(kRouterExperts, 0.0)).weights, dweights);
    });
    // One expert of a softmax over one has weight 1, whatever its logit.
    const bool is_flat = form.score == ScoreFunction::kSoftmaxTopK && form.topk == 1;
    if (is_flat) {
      EXPECT_EQ(Read(dlogits), Values(want.size(), 0.0));
    } else {
      EXPECT_THAT(Read(dlogits), NearValues(want, 1e-8));
    }
  }
}

double AuxLossOf(const RouterForm& form, const AuxLossForm& aux, const Values& logits,
                 const Values& experts) {
  const double topk = static_cast<double>(form.topk);
  const std::size_t seq =
      aux.kind == AuxLoss::kSequence ? static_cast<std::size_t>(aux.seq) : kRouterTokens;
  double loss = 0;
  for (std::size_t begin = 0; aux.kind != AuxLoss::kNone && begin < kRouterTokens; begin += seq) {
    Values counts(kRouterExperts, 0.0);
    Values sums(kRouterExperts, 0.0);
    for (std::size_t t = begin; t < begin + seq; ++t) {
      for (std::size_t k = 0; k < static_cast<std::size_t>(form.topk); ++k) {
        ++counts[static_cast<std::size_t>(experts[t * static_cast<std::size_t>(form.topk) + k])];
      }
      Routed routed;
      const auto first = logits.begin() + static_cast<std::ptrdiff_t>(t * kRouterExperts);
      RouteToken(form, Values(first, first + kRouterExperts), Values(kRouterExperts, 0.0), routed);
      double total = 0;
      for (const double score : routed.scores) total += score;
      for (std::size_t e = 0; e < kRouterExperts; ++e) sums[e] += routed.scores[e] / total;
    }
    const double tokens = static_cast<double>(seq);
    loss += aux.coefficient * kRouterExperts / (topk * tokens * tokens) * Dot(counts, sums) *
            tokens / static_cast<double>(kRouterTokens);
  }
  for (std::size_t t = 0; t < kRouterTokens; ++t) {
    double sum = 0;
    for (std::size_t e = 0; e < kRouterExperts; ++e)
      sum += std::exp(logits[t * kRouterExperts + e]);
    loss += aux.z_coefficient * std::log(sum) * std::log(sum) / static_cast<double>(kRouterTokens);
  }
  return loss;
}

TEST_P(OpsSuite, AuxLossesAreTheirFormulasAndTheirGradientsTheSlopes) {
  const AuxLossForm losses[] = {
      {.kind = AuxLoss::kBatch, .coefficient = 0.7},
      {.kind = AuxLoss::kSequence, .coefficient = 0.7, .seq = 3},
      {.kind = AuxLoss::kNone, .z_coefficient = 0.3},
      {.kind = AuxLoss::kBatch, .coefficient = 0.7, .z_coefficient = 0.3},
  };
  for (const RouterForm& form : Forms()) {
    for (const AuxLossForm& aux : losses) {
      SCOPED_TRACE(::testing::Message()
                   << "score " << static_cast<int>(form.score) << " topk " << form.topk << " aux "
                   << static_cast<int>(aux.kind) << " z " << aux.z_coefficient);
      const Values logits = LogitsApart(random());
      const Routed routed = Route(form, logits, Values(kRouterExperts, 0.0));
      const auto logits_t = Make(DType::kFloat64, {kRouterTokens, kRouterExperts}, logits);
      const auto scores = Make(DType::kFloat64, {kRouterTokens, kRouterExperts}, routed.scores);
      const auto experts = Make(DType::kInt32, {kRouterTokens, form.topk}, routed.experts);
      const auto loss = Make(DType::kFloat64, {1}, {10.0});
      const auto dlogits = Make(DType::kFloat64, {kRouterTokens, kRouterExperts},
                                Values(kRouterTokens * kRouterExperts, 5));
      ops().RouterAuxLoss(queue(), form, aux, logits_t, scores, experts, 4, loss, dlogits);
      EXPECT_NEAR(Read(loss)[0] - 10, AuxLossOf(form, aux, logits, routed.experts), 1e-12);
      Values want = NumericGradient(
          logits, [&](const Values& moved) { return AuxLossOf(form, aux, moved, routed.experts); });
      Values gradient = Read(dlogits);
      double largest = 0;
      for (std::size_t i = 0; i < want.size(); ++i) {
        gradient[i] = (gradient[i] - 5) / 4;
        largest = std::max(largest, std::abs(want[i]));
      }
      for (std::size_t i = 0; i < want.size(); ++i) {
        EXPECT_NEAR(gradient[i], want[i], 1e-8 * largest + 1e-11) << i;
      }
      ops().RouterAuxLoss(queue(), form, aux, logits_t, scores, experts, 4, loss, Tensor());
      EXPECT_NEAR(Read(loss)[0] - 10, 2 * AuxLossOf(form, aux, logits, routed.experts), 1e-12);
    }
  }
}

// Within what one rounding costs, also of bfloat16:
// products of it are exact in the statistics' dtype.
TEST_P(OpsSuite, RouterLogitsAndTheirBackwardAreComputedInTheStatisticsDtype) {
  constexpr std::int64_t kRouted = 37;
  constexpr std::int64_t kInputs = 45;
  constexpr std::int64_t kLogits = 6;
  for (const auto& [dtype, epsilon] : kComputeDTypes) {
    SCOPED_TRACE(DTypeName(dtype));
    const DType statistics = StatisticsOf(dtype);
    const double tolerance = 16 * (statistics == DType::kFloat64 ? 0x1p-52 : 0x1p-23);
    const auto x = Make(dtype, {kRouted, kInputs}, Uniform(kRouted * kInputs));
    const auto weight = Make(dtype, {kLogits, kInputs}, Uniform(kLogits * kInputs));
    const auto dlogits = Make(statistics, {kRouted, kLogits}, Uniform(kRouted * kLogits));
    const auto logits = Poisoned(statistics, {kRouted, kLogits});
    const auto dx = Make(dtype, {kRouted, kInputs}, Uniform(kRouted * kInputs));
    const auto dweight = Poisoned(statistics, {kLogits, kInputs});
    const Values x_values = Read(x), w = Read(weight), d = Read(dlogits);
    Values want_logits(kRouted * kLogits), want_dx = Read(dx), want_dweight(kLogits * kInputs);
    for (std::size_t t = 0; t < kRouted; ++t) {
      for (std::size_t e = 0; e < kLogits; ++e) {
        for (std::size_t h = 0; h < kInputs; ++h) {
          want_logits[t * kLogits + e] += x_values[t * kInputs + h] * w[e * kInputs + h];
          want_dx[t * kInputs + h] += d[t * kLogits + e] * w[e * kInputs + h];
          want_dweight[e * kInputs + h] += d[t * kLogits + e] * x_values[t * kInputs + h];
        }
      }
    }
    ops().Gemm(queue(), {.transpose_b = true}, x, weight, logits);
    ops().RouterLogitsBackward(queue(), dlogits, x, weight, dx, Stored(dweight));
    EXPECT_THAT(Read(logits), NearValues(want_logits, tolerance));
    EXPECT_THAT(Read(dx), NearValues(want_dx, std::max(epsilon, tolerance)));
    EXPECT_THAT(Read(dweight), NearValues(want_dweight, tolerance));
    ops().RouterLogitsBackward(queue(), dlogits, x, weight, dx, Added(dweight));
    for (double& value : want_dweight) value *= 2;
    EXPECT_THAT(Read(dweight), NearValues(want_dweight, tolerance));
    ops().RouterLogitsBackward(queue(), dlogits, x, weight, dx, {});  // frozen
  }
}

TEST_P(OpsSuite, ExpertBiasMovesTowardsTheIdle) {
  // Counts are integers; the array reads int64 as fixed point.
  const auto counts = Make(DType::kInt64, {3}, {0, 0, 0});
  const auto two_ranges_each = Make(DType::kInt32, {7}, {0, 2, 2, 2, 3, 3, 3});
  ops().CountRows(queue(), two_ranges_each, 2, counts);
  const auto one_range_each = Make(DType::kInt32, {4}, {0, 1, 2, 3});
  ops().CountRows(queue(), one_range_each, 1, counts);
  EXPECT_EQ(Read(counts), (Values{3 * 0x1p-40, 2 * 0x1p-40, 1 * 0x1p-40}));
  const auto bias = Make(DType::kFloat32, {3}, {0.5, 0.5, 0.5});
  const auto skips = Scalars(UpdateScalars{.skip = 1});
  ops().UpdateExpertBias(queue(), counts, 0.25, skips, bias);
  EXPECT_EQ(Read(bias), (Values{0.5, 0.5, 0.5}));
  const auto updates = Scalars(UpdateScalars{});
  ops().UpdateExpertBias(queue(), counts, 0.25, updates, bias);
  EXPECT_EQ(Read(bias), (Values{0.25, 0.5, 0.75}));
}

// Tokens, their routing and its gradients as they are without the padding between them.
TEST_P(OpsSuite, PaddingTakesNoPartInRouting) {
  using enum AuxLoss;
  // Sequences of three; one of them is padding alone.
  const Values positions = {0, -1, 0, 0, 1, 2, -1, -1, -1, 0, 1, -1};
  constexpr std::size_t kPadded = 12;
  std::vector<std::size_t> routed;
  for (std::size_t t = 0; t < kPadded; ++t) {
    if (positions[t] >= 0) routed.push_back(t);
  }
  const auto count = static_cast<std::int64_t>(routed.size());
  const auto take = [&](const Values& rows) {
    const std::size_t columns = rows.size() / kPadded;
    Values taken;
    for (const std::size_t t : routed) {
      const auto first = rows.begin() + static_cast<std::ptrdiff_t>(t * columns);
      taken.insert(taken.end(), first, first + static_cast<std::ptrdiff_t>(columns));
    }
    return taken;
  };
  const AuxLossForm losses[] = {{.kind = kBatch, .coefficient = 0.7, .z_coefficient = 0.3},
                                {.kind = kNone, .z_coefficient = 0.3}};
  for (const RouterForm& form : Forms()) {
    for (const AuxLossForm& aux : losses) {
      SCOPED_TRACE(::testing::Message()
                   << "score " << static_cast<int>(form.score) << " topk " << form.topk);
      struct Results {
        Values scores, experts, weights, dlogits, loss;
      };
      const auto run = [&](std::int64_t tokens, const Values& logit_values, const Values& slopes,
                           const Tensor& at) {
        const auto logits = Make(DType::kFloat32, {tokens, kRouterExperts}, logit_values);
        const auto dweights = Make(DType::kFloat32, {tokens, form.topk}, slopes);
        const auto scores = Poisoned(DType::kFloat32, {tokens, kRouterExperts});
        const auto experts = Poisoned(DType::kInt32, {tokens, form.topk});
        const auto weights = Poisoned(DType::kFloat32, {tokens, form.topk});
        const auto dlogits = Poisoned(DType::kFloat32, {tokens, kRouterExperts});
        const auto loss = Make(DType::kFloat32, {1}, {0.0});
        ops().Router(queue(), form, logits, Tensor(), at, scores, experts, weights);
        ops().RouterBackward(queue(), form, scores, experts, dweights, dlogits);
        ops().RouterAuxLoss(queue(), form, aux, logits, scores, experts, 4, loss, dlogits);
        return Results{Read(scores), Read(experts), Read(weights), Read(dlogits), Read(loss)};
      };
      const Values logits = Uniform(kPadded * kRouterExperts);
      const Values slopes = Uniform(static_cast<std::int64_t>(kPadded) * form.topk);
      const auto at = Make(DType::kInt32, {kPadded}, positions);
      const Results have = run(kPadded, logits, slopes, at);
      const Results want = run(count, take(logits), take(slopes), Tensor());
      EXPECT_EQ(take(have.scores), want.scores);
      EXPECT_EQ(take(have.experts), want.experts);
      EXPECT_EQ(take(have.weights), want.weights);
      EXPECT_EQ(take(have.dlogits), want.dlogits);
      EXPECT_EQ(have.loss, want.loss);
      for (std::size_t t = 0; t < kPadded; ++t) {
        if (positions[t] >= 0) continue;
        for (std::size_t e = 0; e < kRouterExperts; ++e) {
          EXPECT_EQ(have.scores[t * kRouterExperts + e], 0) << t;
          EXPECT_EQ(have.dlogits[t * kRouterExperts + e], 0) << t;
        }
        for (std::size_t k = 0; k < static_cast<std::size_t>(form.topk); ++k) {
          EXPECT_EQ(have.experts[t * static_cast<std::size_t>(form.topk) + k], -1) << t;
          EXPECT_EQ(have.weights[t * static_cast<std::size_t>(form.topk) + k], 0) << t;
        }
      }
    }
  }
}

// Each sequence by the tokens that it has; one of padding alone counts as none.
TEST_P(OpsSuite, SequencesAreBalancedWithoutTheirPadding) {
  const RouterForm form{.topk = 2};
  const AuxLossForm aux{.kind = AuxLoss::kSequence, .coefficient = 0.7, .seq = 3};
  const auto loss_of = [&](std::int64_t tokens, const Values& logits, const Tensor& positions,
                           std::int64_t seq) {
    const auto logits_t = Make(DType::kFloat64, {tokens, kRouterExperts}, logits);
    const auto scores = Poisoned(DType::kFloat64, {tokens, kRouterExperts});
    const auto experts = Poisoned(DType::kInt32, {tokens, 2});
    const auto weights = Poisoned(DType::kFloat64, {tokens, 2});
    const auto loss = Make(DType::kFloat64, {1}, {0.0});
    ops().Router(queue(), form, logits_t, Tensor(), positions, scores, experts, weights);
    AuxLossForm of_seq = aux;
    of_seq.seq = seq;
    ops().RouterAuxLoss(queue(), form, of_seq, logits_t, scores, experts, 1, loss, Tensor());
    return Read(loss)[0];
  };
  const Values logits = Uniform(9 * kRouterExperts);
  const auto rows = [&](std::size_t begin, std::size_t count) {
    const auto first = logits.begin() + static_cast<std::ptrdiff_t>(begin * kRouterExperts);
    return Values(first, first + static_cast<std::ptrdiff_t>(count * kRouterExperts));
  };
  const auto positions = Make(DType::kInt32, {9}, {0, 1, -1, -1, -1, -1, 0, -1, -1});
  const double apart =
      (loss_of(2, rows(0, 2), Tensor(), 2) + loss_of(1, rows(6, 1), Tensor(), 1)) / 2;
  EXPECT_NEAR(loss_of(9, logits, positions, 3), apart, 1e-15);
  const auto nothing = Make(DType::kInt32, {9}, Values(9, -1.0));
  EXPECT_EQ(loss_of(9, logits, nothing, 3), 0);
}

TEST_P(OpsSuite, RoutingIsTheSameWithAnyNumberOfThreads) {
  constexpr std::int64_t kMany = 3001;
  const RouterForm form{.score = ScoreFunction::kSigmoid, .topk = 2, .normalize = true};
  const AuxLossForm aux{.kind = AuxLoss::kBatch, .coefficient = 1, .z_coefficient = 1};
  const auto logits = Make(DType::kFloat32, {kMany, 16}, Uniform(kMany * 16));
  const auto dweights = Make(DType::kFloat32, {kMany, 2}, Uniform(kMany * 2));
  ExpectSameWithAnyThreads([&] {
    const auto scores = Poisoned(DType::kFloat32, {kMany, 16});
    const auto experts = Poisoned(DType::kInt32, {kMany, 2});
    const auto weights = Poisoned(DType::kFloat32, {kMany, 2});
    const auto dlogits = Poisoned(DType::kFloat32, {kMany, 16});
    const auto loss = Make(DType::kFloat32, {1}, {0.0});
    ops().Router(queue(), form, logits, Tensor(), Tensor(), scores, experts, weights);
    ops().RouterBackward(queue(), form, scores, experts, dweights, dlogits);
    ops().RouterAuxLoss(queue(), form, aux, logits, scores, experts, 1, loss, dlogits);
    return std::vector<Values>{Read(scores), Read(experts), Read(weights), Read(dlogits),
                               Read(loss)};
  });
}

}  // namespace
}  // namespace ckpt::trainer

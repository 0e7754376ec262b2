#include <numeric>

#include "tests/conformance/ops_suite.h"

namespace ckpt::trainer {
namespace {

constexpr std::int64_t kPermuteTokens = 61;
constexpr std::int64_t kTopK = 3;
constexpr std::int64_t kPermuteExperts = 7;
constexpr std::int64_t kChoices = kPermuteTokens * kTopK;

// For every expert of the form its kept choices in order, by the definition of who is kept; and how
// many are not.
struct Kept {
  std::vector<std::vector<std::size_t>> choices;
  std::size_t dropped = 0;
};
Kept KeptChoices(const SortForm& form, const Values& experts, const Values& weights) {
  Kept kept;
  kept.choices.resize(static_cast<std::size_t>(form.num_experts));
  for (std::size_t choice = 0; choice < experts.size(); ++choice) {
    const double index = experts[choice] - static_cast<double>(form.first_expert);
    if (index < 0 || index >= static_cast<double>(form.num_experts)) continue;
    kept.choices[static_cast<std::size_t>(index)].push_back(choice);
  }
  for (std::vector<std::size_t>& choices : kept.choices) {
    const auto capacity = static_cast<std::size_t>(form.capacity);
    if (capacity == 0 || choices.size() <= capacity) continue;
    if (form.policy == DropPolicy::kProbability) {
      std::stable_sort(choices.begin(), choices.end(),
                       [&](std::size_t a, std::size_t b) { return weights[a] > weights[b]; });
    }
    kept.dropped += choices.size() - capacity;
    choices.resize(capacity);
    std::sort(choices.begin(), choices.end());
  }
  return kept;
}

TEST_P(OpsSuite, SortByExpertGivesEveryKeptChoiceItsRow) {
  for (int trial = 0; trial < 50; ++trial) {
    const Values expert_values = RandomIndices(kChoices, kPermuteExperts);
    // Few distinct weights: ties are common.
    const Values weight_values = RandomIndices(kChoices, 5);
    const bool is_part = trial % 5 == 4;
    const SortForm form{.first_expert = is_part ? 2 : 0,
                        .num_experts = is_part ? 3 : kPermuteExperts,
                        .capacity = trial % 3 == 0 ? 0 : 1 + trial,
                        .policy = trial % 2 == 0 ? DropPolicy::kProbability : DropPolicy::kPosition,
                        .pad = trial % 3 == 2};
    SCOPED_TRACE(::testing::Message() << "trial " << trial << " capacity " << form.capacity);
    const auto experts = Make(DType::kInt32, {kPermuteTokens, kTopK}, expert_values);
    const auto weights = Make(DType::kFloat32, {kPermuteTokens, kTopK}, weight_values);

    const Kept kept = KeptChoices(form, expert_values, weight_values);
    Values want_rows(kChoices, -1);
    Values want_choices;
    Values want_offsets = {0};
    for (const std::vector<std::size_t>& choices : kept.choices) {
      for (const std::size_t choice : choices) {
        want_rows[choice] = static_cast<double>(want_choices.size());
        want_choices.push_back(static_cast<double>(choice));
      }
      if (form.pad) {
        want_choices.resize(static_cast<std::size_t>(form.capacity) * want_offsets.size(), -1);
      }
      want_offsets.push_back(static_cast<double>(want_choices.size()));
    }

    const auto num_rows = static_cast<std::int64_t>(want_choices.size());
    for (const std::int64_t more : {0, 3}) {
      const auto sorted = MakeRows(kPermuteTokens, kTopK, form.num_experts, num_rows + more);
      const auto dropped = Counter();
      const auto overflows = Counter();
      ops().SortByExpert(queue(), form, experts, weights, sorted.view(), dropped, overflows);
      EXPECT_EQ(Read(sorted.rows), want_rows);
      EXPECT_EQ(Read(sorted.offsets), want_offsets);
      Values choices = Read(sorted.choices);
      choices.resize(want_choices.size());
      EXPECT_EQ(choices, want_choices);
      EXPECT_EQ(CountOf(dropped), static_cast<double>(kept.dropped));
      EXPECT_EQ(CountOf(overflows), 0);
    }
    if (num_rows == 0) continue;
    // One row too few.
    const auto sorted = MakeRows(kPermuteTokens, kTopK, form.num_experts, num_rows - 1);
    const auto overflows = Counter();
    for (const double count : {1, 2}) {
      ops().SortByExpert(queue(), form, experts, weights, sorted.view(), {}, overflows);
      EXPECT_EQ(CountOf(overflows), count);
    }
    EXPECT_THAT(Read(sorted.rows), ::testing::Each(-1));
    EXPECT_THAT(Read(sorted.offsets), ::testing::Each(0));
  }
}

TEST_P(OpsSuite, SortByExpertGivesChoicesOfPaddingNoRow) {
  const auto experts = Make(DType::kInt32, {4, 2}, {-1, -1, 1, 0, -1, -1, 1, 2});
  const auto weights = Make(DType::kFloat32, {4, 2}, Values(8, 0.5));
  const auto sorted = MakeRows(4, 2, 3, 4);
  const auto dropped = Counter();
  ops().SortByExpert(queue(), {.num_experts = 3}, experts, weights, sorted.view(), dropped, {});
  EXPECT_EQ(Read(sorted.rows), (Values{-1, -1, 1, 0, -1, -1, 2, 3}));
  EXPECT_EQ(Read(sorted.choices), (Values{3, 2, 6, 7}));
  EXPECT_EQ(Read(sorted.offsets), (Values{0, 1, 3, 4}));
  EXPECT_EQ(CountOf(dropped), 0);
}

TEST_P(OpsSuite, SortByExpertDropsWeightsThatAreNotNumbersFirst) {
  const double nan = std::nan("");
  const auto experts = Make(DType::kInt32, {4, 1}, {0, 0, 0, 0});
  const auto weights = Make(DType::kFloat32, {4, 1}, {nan, 0.1, nan, 0.2});
  const auto sorted = MakeRows(4, 1, 1, 4);
  ops().SortByExpert(queue(), {.num_experts = 1, .capacity = 3}, experts, weights, sorted.view(),
                     {}, {});
  EXPECT_EQ(Read(sorted.rows), (Values{0, 1, -1, 2}));
}

// Poison is NaN: rows that are not in use stay as they were.
Values FirstRows(const Values& values, std::size_t rows, std::size_t columns) {
  for (std::size_t i = rows * columns; i < values.size(); ++i) EXPECT_TRUE(std::isnan(values[i]));
  return {values.begin(), values.begin() + static_cast<std::ptrdiff_t>(rows * columns)};
}

TEST_P(OpsSuite, PermuteCopiesTokensAndWeightsToRowsInUse) {
  const auto sorted = SomeRows();
  for (const auto& [dtype, epsilon] : kComputeDTypes) {
    const auto x = Make(dtype, {3, 2}, {1, 2, 3, 4, 5, 6});
    const auto weights = Make(StatisticsOf(dtype), {3, 2}, {1, 2, 3, 4, 5, 6});
    const auto y = Poisoned(dtype, {8, 2});
    const auto row_weights = Poisoned(StatisticsOf(dtype), {8});
    ops().Permute(queue(), sorted.view(), x, weights, y, row_weights);
    EXPECT_EQ(FirstRows(Read(y), 6, 2), (Values{1, 2, 0, 0, 3, 4, 5, 6, 1, 2, 5, 6}));
    EXPECT_EQ(FirstRows(Read(row_weights), 6, 1), (Values{2, 0, 3, 5, 1, 6}));
    const auto alone = Poisoned(dtype, {8, 2});
    ops().Permute(queue(), sorted.view(), x, {}, alone, {});
    EXPECT_EQ(FirstRows(Read(alone), 6, 2), FirstRows(Read(y), 6, 2));
  }
}

TEST_P(OpsSuite, UnpermuteSumsTheRowsOfATokenAndBringsItsWeightsBack) {
  const double nan = std::nan("");
  const auto sorted = SomeRows();
  for (const auto& [dtype, epsilon] : kComputeDTypes) {
    const auto x = Make(dtype, {8, 1}, {1, 2, 4, 8, 16, 32, nan, nan});
    const auto row_weights = Make(StatisticsOf(dtype), {8}, {2, 0, 3, 5, 1, 6, nan, nan});
    const auto y = Poisoned(dtype, {3, 1});
    const auto weights = Poisoned(StatisticsOf(dtype), {3, 2});
    ops().Unpermute(queue(), sorted.view(), x, row_weights, y, weights);
    EXPECT_EQ(Read(y), (Values{17, 4, 40}));
    EXPECT_EQ(Read(weights), (Values{1, 2, 3, 0, 5, 6}));
    const auto alone = Poisoned(dtype, {3, 1});
    ops().Unpermute(queue(), sorted.view(), x, {}, alone, {});
    EXPECT_EQ(Read(alone), Read(y));
  }
}

TEST_P(OpsSuite, PermutationsAreTheSameWithAnyNumberOfThreads) {
  constexpr std::int64_t kHidden = 401;
  const auto x =
      Make(DType::kFloat32, {kPermuteTokens, kHidden}, Uniform(kPermuteTokens * kHidden));
  const auto experts =
      Make(DType::kInt32, {kPermuteTokens, kTopK}, RandomIndices(kChoices, kPermuteExperts));
  const auto weights = Make(DType::kFloat32, {kPermuteTokens, kTopK}, Uniform(kChoices));
  ExpectSameWithAnyThreads([&] {
    const auto sorted = MakeRows(kPermuteTokens, kTopK, kPermuteExperts, kChoices);
    const auto y = Poisoned(DType::kFloat32, {kChoices, kHidden});
    const auto row_weights = Poisoned(DType::kFloat32, {kChoices});
    const auto back = Poisoned(DType::kFloat32, {kPermuteTokens, kHidden});
    const auto weights_back = Poisoned(DType::kFloat32, {kPermuteTokens, kTopK});
    ops().SortByExpert(queue(), {.num_experts = kPermuteExperts}, experts, weights, sorted.view(),
                       {}, {});
    ops().Permute(queue(), sorted.view(), x, weights, y, row_weights);
    ops().Unpermute(queue(), sorted.view(), y, row_weights, back, weights_back);
    EXPECT_EQ(Read(weights_back), Read(weights));
    return std::vector<Values>{Read(sorted.rows), Read(y), Read(back)};
  });
}

TEST_P(OpsSuite, ScatterRowsUndoesGatherRows) {
  Values order(5);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random());
  Values index_values = order;
  index_values.insert(index_values.end(), 2, 99);  // not in use
  const auto index = Make(DType::kInt32, {7}, index_values);
  const auto count = Make(DType::kInt32, {1}, {5});
  const auto x = Make(DType::kBfloat16, {7, 1}, {10, 11, 12, 13, 14, 15, 16});
  const auto y = Poisoned(DType::kBfloat16, {7, 1});
  const auto back = Poisoned(DType::kBfloat16, {7, 1});
  ops().GatherRows(queue(), x, index, count, y);
  for (double& value : order) value += 10;
  EXPECT_EQ(FirstRows(Read(y), 5, 1), order);
  ops().ScatterRows(queue(), y, index, count, back);
  EXPECT_EQ(FirstRows(Read(back), 5, 1), (Values{10, 11, 12, 13, 14}));
}

// Three ranks with two experts each; rank r sends r + 2·e rows to expert e, but none to expert 3.
constexpr int kRanks = 3;
constexpr int kHeld = 2;
int Sent(int source, int expert) { return expert == 3 ? 0 : source + 2 * expert; }
Values SentOffsets() {
  Values offsets;
  for (int source = 0; source < kRanks; ++source) {
    double row = 0;
    offsets.push_back(row);
    for (int e = 0; e < kRanks * kHeld; ++e) offsets.push_back(row += Sent(source, e));
  }
  return offsets;
}

TEST_P(OpsSuite, ChosenRanksAreThoseThatHoldATokensExperts) {
  // Three ranks hold two experts each; the last token is padding.
  const auto experts = Make(DType::kInt32, {4, 3}, {5, 0, 1, 2, 3, 2, 4, 1, 3, -1, -1, -1});
  const auto ranks = Poisoned(DType::kInt32, {4, 3});
  ops().ChosenRanks(queue(), experts, 2, ranks);
  EXPECT_EQ(Read(ranks), (Values{0, -1, 2, -1, 1, -1, 0, 1, 2, -1, -1, -1}));
}

TEST_P(OpsSuite, PlanExchangeSortsWhatIsReceived) {
  const auto offsets = Make(DType::kInt32, {kRanks, kRanks * kHeld + 1}, SentOffsets());
  constexpr std::int64_t kMost = 3 * (8 + 10) + 2 * 3;  // of the last rank, whose experts get most
  for (int rank = 0; rank < kRanks; ++rank) {
    for (const bool separates : {false, true}) {
      SCOPED_TRACE(::testing::Message() << "rank " << rank << " separates " << separates);
      Values want_send, want_receive, want_arrival;
      Values want_offsets = {0};
      for (int peer = 0; peer < kRanks; ++peer) {
        want_send.push_back(Sent(rank, 2 * peer) + Sent(rank, 2 * peer + 1));
        want_receive.push_back(Sent(peer, 2 * rank) + Sent(peer, 2 * rank + 1));
      }
      for (int held = 0; held < kHeld; ++held) {
        for (int source = 0; source < kRanks; ++source) {
          double from = std::accumulate(want_receive.begin(), want_receive.begin() + source, 0.0);
          if (held == 1) from += Sent(source, 2 * rank);
          for (int i = 0; i < Sent(source, 2 * rank + held); ++i) want_arrival.push_back(from++);
          if (separates || source + 1 == kRanks) {
            want_offsets.push_back(static_cast<double>(want_arrival.size()));
          }
        }
      }
      const auto send = Poisoned(DType::kInt64, {kRanks});
      const auto receive = Poisoned(DType::kInt64, {kRanks});
      const auto arrival = Poisoned(DType::kInt32, {kMost});
      const auto ranges = Poisoned(DType::kInt32, {separates ? kRanks * kHeld + 1 : kHeld + 1});
      const auto overflows = Counter();
      ops().PlanExchange(queue(), rank, offsets, {send, receive, arrival, ranges}, overflows);
      const auto counts = [](Values values) {
        for (double& value : values) value *= 0x1p40;  // read as fixed point
        return values;
      };
      EXPECT_EQ(counts(Read(send)), want_send);
      EXPECT_EQ(counts(Read(receive)), want_receive);
      EXPECT_EQ(Read(ranges), want_offsets);
      Values sorted = Read(arrival);
      sorted.resize(want_arrival.size());
      EXPECT_EQ(sorted, want_arrival);
      EXPECT_EQ(CountOf(overflows), 0);

      // Too few rows for the last rank: no rank sends.
      const Tensor fewer = arrival.tensor().Rows(0, kMost - 1);
      ops().PlanExchange(queue(), rank, offsets, {send, receive, fewer, ranges}, overflows);
      EXPECT_EQ(CountOf(overflows), 1);
      for (const auto* zeros : {&send, &receive, &ranges}) {
        EXPECT_THAT(Read(*zeros), ::testing::Each(0));
      }
    }
  }
}

}  // namespace
}  // namespace ckpt::trainer

#include <numeric>

#include "tests/conformance/ops_suite.h"

namespace ckpt::trainer {
namespace {

constexpr std::int64_t kTokens = 61;
constexpr std::int64_t kTopK = 3;
constexpr std::int64_t kExperts = 7;
constexpr std::int64_t kSlots = kTokens * kTopK;

// For every expert its kept (token, slot) pairs in order, by the definition of who is kept.
std::vector<std::vector<std::size_t>> KeptSlots(const DropForm& form, const Values& experts,
                                                const Values& weights) {
  std::vector<std::vector<std::size_t>> kept(static_cast<std::size_t>(form.num_experts));
  for (std::size_t slot = 0; slot < experts.size(); ++slot) {
    kept[static_cast<std::size_t>(experts[slot])].push_back(slot);
  }
  for (std::vector<std::size_t>& slots : kept) {
    if (form.capacity == 0 || slots.size() <= static_cast<std::size_t>(form.capacity)) continue;
    if (form.policy == DropPolicy::kProbability) {
      std::stable_sort(slots.begin(), slots.end(),
                       [&](std::size_t a, std::size_t b) { return weights[a] > weights[b]; });
    }
    slots.resize(static_cast<std::size_t>(form.capacity));
    std::sort(slots.begin(), slots.end());
  }
  return kept;
}

TEST_P(OpsSuite, SortByExpertGivesEveryKeptSlotItsRow) {
  for (int trial = 0; trial < 50; ++trial) {
    const Values expert_values = RandomIndices(kSlots, kExperts);
    // Few distinct weights: ties are common.
    const Values weight_values = RandomIndices(kSlots, 5);
    const DropForm form{.num_experts = kExperts,
                        .capacity = trial % 3 == 0 ? 0 : 1 + trial,
                        .policy = trial % 2 == 0 ? DropPolicy::kProbability : DropPolicy::kPosition,
                        .pad = trial % 3 == 2};
    SCOPED_TRACE(::testing::Message() << "trial " << trial << " capacity " << form.capacity);
    const auto experts = Make(DType::kInt32, {kTokens, kTopK}, expert_values);
    const auto weights = Make(DType::kFloat32, {kTokens, kTopK}, weight_values);
    const auto rows = Poisoned(DType::kInt32, {kTokens, kTopK});
    const auto offsets = Poisoned(DType::kInt32, {kExperts + 1});
    ops().SortByExpert(queue(), form, experts, weights, rows, offsets);

    Values want_rows(kSlots, -1);
    Values want_offsets = {0};
    for (const std::vector<std::size_t>& slots : KeptSlots(form, expert_values, weight_values)) {
      double row = want_offsets.back();
      for (const std::size_t slot : slots) want_rows[slot] = row++;
      want_offsets.push_back(form.pad ? want_offsets.back() + static_cast<double>(form.capacity)
                                      : row);
    }
    EXPECT_EQ(Read(rows), want_rows);
    EXPECT_EQ(Read(offsets), want_offsets);
  }
}

TEST_P(OpsSuite, SortByExpertGivesChoicesOfPaddingNoRow) {
  const auto experts = Make(DType::kInt32, {4, 2}, {-1, -1, 1, 0, -1, -1, 1, 2});
  const auto weights = Make(DType::kFloat32, {4, 2}, Values(8, 0.5));
  const auto rows = Poisoned(DType::kInt32, {4, 2});
  const auto offsets = Poisoned(DType::kInt32, {4});
  ops().SortByExpert(queue(), {.num_experts = 3}, experts, weights, rows, offsets);
  EXPECT_EQ(Read(rows), (Values{-1, -1, 1, 0, -1, -1, 2, 3}));
  EXPECT_EQ(Read(offsets), (Values{0, 1, 3, 4}));
}

TEST_P(OpsSuite, SortByExpertDropsWeightsThatAreNotNumbersFirst) {
  const double nan = std::nan("");
  const auto experts = Make(DType::kInt32, {4, 1}, {0, 0, 0, 0});
  const auto weights = Make(DType::kFloat32, {4, 1}, {nan, 0.1, nan, 0.2});
  const auto rows = Poisoned(DType::kInt32, {4, 1});
  const auto offsets = Poisoned(DType::kInt32, {2});
  ops().SortByExpert(queue(), {.num_experts = 1, .capacity = 3}, experts, weights, rows, offsets);
  EXPECT_EQ(Read(rows), (Values{0, 1, -1, 2}));
}

// Tokens 0, 1, 2 in two slots; row 1 is nobody's, one slot is dropped.
const Values kRowValues = {4, 0, 2, -1, 3, 5};

TEST_P(OpsSuite, PermuteCopiesTokensToTheirRowsAndClearsTheRest) {
  for (const auto& [dtype, epsilon] : kComputeDTypes) {
    const auto x = Make(dtype, {3, 2}, {1, 2, 3, 4, 5, 6});
    const auto rows = Make(DType::kInt32, {3, 2}, kRowValues);
    const auto y = Poisoned(dtype, {6, 2});
    ops().Permute(queue(), x, rows, y);
    EXPECT_EQ(Read(y), (Values{1, 2, 0, 0, 3, 4, 5, 6, 1, 2, 5, 6}));
  }
}

TEST_P(OpsSuite, UnpermuteSumsTheRowsOfAToken) {
  for (const auto& [dtype, epsilon] : kComputeDTypes) {
    const auto x = Make(dtype, {6, 1}, {1, 2, 4, 8, 16, 32});
    const auto rows = Make(DType::kInt32, {3, 2}, kRowValues);
    const auto y = Poisoned(dtype, {3, 1});
    ops().Unpermute(queue(), x, rows, y);
    EXPECT_EQ(Read(y), (Values{17, 4, 40}));
  }
}

TEST_P(OpsSuite, WeightsFollowTheirSlots) {
  const auto x = Make(DType::kFloat32, {3, 2}, {1, 2, 3, 4, 5, 6});
  const auto rows = Make(DType::kInt32, {3, 2}, kRowValues);
  const auto y = Poisoned(DType::kFloat32, {6});
  ops().PermuteWeights(queue(), x, rows, y);
  EXPECT_EQ(Read(y), (Values{2, 0, 3, 5, 1, 6}));
  const auto back = Poisoned(DType::kFloat32, {3, 2});
  ops().UnpermuteWeights(queue(), y, rows, back);
  EXPECT_EQ(Read(back), (Values{1, 2, 3, 0, 5, 6}));
}

TEST_P(OpsSuite, ScatterRowsUndoesGatherRows) {
  Values order(5);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random());
  const auto index = Make(DType::kInt32, {5}, order);
  const auto x = Make(DType::kBfloat16, {5, 1}, {10, 11, 12, 13, 14});
  const auto y = Poisoned(DType::kBfloat16, {5, 1});
  const auto back = Poisoned(DType::kBfloat16, {5, 1});
  ops().GatherRows(queue(), x, index, y);
  for (double& value : order) value += 10;
  EXPECT_EQ(Read(y), order);
  ops().ScatterRows(queue(), y, index, back);
  EXPECT_EQ(Read(back), Read(x));
}

TEST_P(OpsSuite, PermutationsAreTheSameWithAnyNumberOfThreads) {
  constexpr std::int64_t kHidden = 401;
  const auto x = Make(DType::kFloat32, {kTokens, kHidden}, Uniform(kTokens * kHidden));
  const auto experts = Make(DType::kInt32, {kTokens, kTopK}, RandomIndices(kSlots, kExperts));
  const auto weights = Make(DType::kFloat32, {kTokens, kTopK}, Uniform(kSlots));
  ExpectSameWithAnyThreads([&] {
    const auto rows = Poisoned(DType::kInt32, {kTokens, kTopK});
    const auto offsets = Poisoned(DType::kInt32, {kExperts + 1});
    const auto sorted = Poisoned(DType::kFloat32, {kSlots, kHidden});
    const auto back = Poisoned(DType::kFloat32, {kTokens, kHidden});
    ops().SortByExpert(queue(), {.num_experts = kExperts}, experts, weights, rows, offsets);
    ops().Permute(queue(), x, rows, sorted);
    ops().Unpermute(queue(), sorted, rows, back);
    return std::vector<Values>{Read(rows), Read(sorted), Read(back)};
  });
}

}  // namespace
}  // namespace ckpt::trainer

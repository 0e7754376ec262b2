#include "tests/conformance/ops_suite.h"

namespace ckpt::trainer {
namespace {

constexpr std::int64_t kEndsTokens = 9;
constexpr std::int64_t kEndsColumns = 45;

double LogSumExp(const Values& logits, std::size_t token) {
  const double* row = logits.data() + token * kEndsColumns;
  const double largest = *std::max_element(row, row + kEndsColumns);
  double sum = 0;
  for (std::int64_t i = 0; i < kEndsColumns; ++i) sum += std::exp(row[i] - largest);
  return largest + std::log(sum);
}

Values Losses(const Values& logits, const Values& labels) {
  Values losses;
  for (std::size_t t = 0; t < labels.size(); ++t) {
    const auto at = static_cast<std::size_t>(std::max(0.0, labels[t]));
    losses.push_back(labels[t] < 0 ? 0 : LogSumExp(logits, t) - logits[t * kEndsColumns + at]);
  }
  return losses;
}

TEST_P(OpsSuite, EmbeddingTakesRowsOfTheTable) {
  for (const auto& [dtype, epsilon] : kComputeDTypes) {
    const auto table = Make(dtype, {7, 3}, Uniform(21));
    const auto tokens = Make(DType::kInt32, {4}, {6, 0, 6, 2});
    const auto y = Poisoned(dtype, {4, 3});
    ops().Embedding(queue(), tokens, table, y);
    const Values rows = Read(table);
    Values want;
    for (const std::size_t token : {6U, 0U, 6U, 2U}) {
      want.insert(want.end(), rows.begin() + 3 * static_cast<std::ptrdiff_t>(token),
                  rows.begin() + 3 * static_cast<std::ptrdiff_t>(token) + 3);
    }
    EXPECT_EQ(Read(y), want);
  }
}

TEST_P(OpsSuite, EmbeddingBackwardAddsTheGradientsOfEveryTokensRows) {
  const auto tokens = Make(DType::kInt32, {4}, {6, 0, 6, 2});
  const auto dy = Make(DType::kFloat32, {4, 2}, {1, 2, 10, 20, 100, 200, 1000, 2000});
  const Values want = {10, 20, 0, 0, 1000, 2000, 0, 0, 0, 0, 0, 0, 101, 202};
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kInt64}) {
    SCOPED_TRACE(DTypeName(dtype));
    const auto dtable = Make(dtype, {7, 2}, Values(14, 1.0));
    ops().EmbeddingBackward(queue(), tokens, dy, Added(dtable));
    Values sums = Read(dtable);
    for (double& sum : sums) sum -= 1;
    EXPECT_EQ(sums, want);
  }
}

TEST_P(OpsSuite, EmbeddingBackwardStoresZerosForTokensThatDoNotOccur) {
  const auto tokens = Make(DType::kInt32, {4}, {6, 0, 6, 2});
  const auto dy = Make(DType::kFloat32, {4, 2}, {1, 2, 10, 20, 100, 200, 1000, 2000});
  ExpectStoresWhatItAddsToZeros({7, 2}, [&](const Gradient& dtable) {
    ops().EmbeddingBackward(queue(), tokens, dy, dtable);
  });
}

TEST_P(OpsSuite, CrossEntropyIsItsFormulaAndLeavesOutIgnoredTokens) {
  for (const auto& [dtype, epsilon] : kComputeDTypes) {
    SCOPED_TRACE(DTypeName(dtype));
    const Values values = Uniform(kEndsTokens * kEndsColumns, -30, 30);
    Values label_values = RandomIndices(kEndsTokens, kEndsColumns);
    label_values[2] = -100;
    const auto logits = Make(dtype, {kEndsTokens, kEndsColumns}, values);
    const auto labels = Make(DType::kInt32, {kEndsTokens}, label_values);
    const auto losses = Poisoned(StatisticsOf(dtype), {kEndsTokens});
    const auto lse = Poisoned(StatisticsOf(dtype), {kEndsTokens});
    ops().CrossEntropy(queue(), logits, labels, losses, lse);
    const double tolerance = dtype == DType::kFloat64 ? 1e-14 : 2e-7;
    EXPECT_THAT(Read(losses), NearValues(Losses(Read(logits), label_values), tolerance));
  }
}

// exp of these overflows, and underflows, unless the largest is taken off first.
TEST_P(OpsSuite, CrossEntropyIsStableForLargeLogits) {
  const auto logits = Make(DType::kFloat32, {2, 2}, {1e5, 1e5, -1e5, -1e5});
  const auto labels = Make(DType::kInt32, {2}, {0, 1});
  const auto losses = Poisoned(DType::kFloat32, {2});
  const auto lse = Poisoned(DType::kFloat32, {2});
  ops().CrossEntropy(queue(), logits, labels, losses, lse);
  EXPECT_THAT(Read(losses), NearValues(Values(2, std::log(2.0)), 1e-6));
}

TEST_P(OpsSuite, CrossEntropyBackwardIsTheSlopeOfTheForward) {
  const Values values = Uniform(kEndsTokens * kEndsColumns);
  Values label_values = RandomIndices(kEndsTokens, kEndsColumns);
  label_values[5] = -1;
  const Values weights = Uniform(kEndsTokens);
  Values lse_values;
  for (std::size_t t = 0; t < kEndsTokens; ++t) lse_values.push_back(LogSumExp(values, t));
  const auto logits = Make(DType::kFloat64, {kEndsTokens, kEndsColumns}, values);
  const auto labels = Make(DType::kInt32, {kEndsTokens}, label_values);
  const auto lse = Make(DType::kFloat64, {kEndsTokens}, lse_values);
  const auto token_weights = Make(DType::kFloat64, {kEndsTokens}, weights);
  const auto dlogits = Poisoned(DType::kFloat64, {kEndsTokens, kEndsColumns});
  ops().CrossEntropyBackward(queue(), logits, labels, lse, token_weights, dlogits);
  EXPECT_THAT(Read(dlogits), NearValues(NumericGradient(values,
                                                        [&](const Values& moved) {
                                                          return Dot(Losses(moved, label_values),
                                                                     weights);
                                                        }),
                                        1e-8));
  const Values apart = Read(dlogits);
  ops().CrossEntropyBackward(queue(), logits, labels, lse, token_weights, logits);
  EXPECT_EQ(Read(logits), apart) << "in place of the logits";
}

TEST_P(OpsSuite, EndsAreTheSameWithAnyNumberOfThreads) {
  constexpr std::int64_t kRows = 203;
  constexpr std::int64_t kWide = 263;
  const auto logits = Make(DType::kFloat32, {kRows, kWide}, Uniform(kRows * kWide));
  const auto labels = Make(DType::kInt32, {kRows}, RandomIndices(kRows, kWide));
  const auto token_weights = Make(DType::kFloat32, {kRows}, Uniform(kRows));
  const auto tokens = Make(DType::kInt32, {kRows}, RandomIndices(kRows, 11));
  ExpectSameWithAnyThreads([&] {
    const auto losses = Poisoned(DType::kFloat32, {kRows});
    const auto lse = Poisoned(DType::kFloat32, {kRows});
    const auto dlogits = Poisoned(DType::kFloat32, {kRows, kWide});
    const auto dtable = Poisoned(DType::kFloat32, {11, kWide});
    ops().CrossEntropy(queue(), logits, labels, losses, lse);
    ops().CrossEntropyBackward(queue(), logits, labels, lse, token_weights, dlogits);
    ops().EmbeddingBackward(queue(), tokens, logits, Stored(dtable));
    return std::vector<Values>{Read(losses), Read(lse), Read(dlogits), Read(dtable)};
  });
}

}  // namespace
}  // namespace ckpt::trainer

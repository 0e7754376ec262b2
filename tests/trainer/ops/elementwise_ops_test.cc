#include "tests/conformance/ops_suite.h"
#include "trainer/ops/cpu/internal/exp.h"

namespace ckpt::trainer {
namespace {

TEST_P(OpsSuite, CastRoundsOnceBetweenFloatTypes) {
  const Values values = Uniform(1037);
  for (const auto& [from_dtype, from_epsilon] : kComputeDTypes) {
    for (const auto& [to_dtype, to_epsilon] : kComputeDTypes) {
      SCOPED_TRACE(::testing::Message() << DTypeName(from_dtype) << " to " << DTypeName(to_dtype));
      const auto from = Make(from_dtype, {1037}, values);
      const auto to = Poisoned(to_dtype, {1037});
      ops().Cast(queue(), from, to);
      EXPECT_EQ(Read(to), Read(Make(to_dtype, {1037}, Read(from))));
    }
  }
}

TEST_P(OpsSuite, FixedPointSumsAreTheSameInEveryOrder) {
  const auto a = Make(DType::kFloat32, {513}, Uniform(513));
  const auto b = Make(DType::kFloat32, {513}, Uniform(513, -1e-6, 1e-6));
  const auto one_way = Make(DType::kInt64, {513}, Values(513, 0.0));
  const auto other_way = Make(DType::kInt64, {513}, Values(513, 0.0));
  for (int times = 0; times < 3; ++times) ops().Accumulate(queue(), a, one_way);
  ops().Accumulate(queue(), b, one_way);
  ops().Accumulate(queue(), b, other_way);
  for (int times = 0; times < 3; ++times) ops().Accumulate(queue(), a, other_way);
  EXPECT_EQ(one_way.Bytes(), other_way.Bytes());
  const auto sum = Poisoned(DType::kFloat64, {513});
  ops().Cast(queue(), one_way, sum);
  Values want = Read(a);
  const Values small = Read(b);
  for (std::size_t i = 0; i < want.size(); ++i) want[i] = 3 * want[i] + small[i];
  EXPECT_THAT(Read(sum), NearValues(want, 1e-12));
}

TEST_P(OpsSuite, FixedPointAddsToFixedPointExactlyAndABadContributionStaysBad) {
  const auto sum = Make(DType::kInt64, {3}, {0.5, 1, 2});
  const auto more = Make(DType::kInt64, {3}, {0.25, std::nan(""), 0});
  ops().Accumulate(queue(), more, sum);
  ops().Accumulate(queue(), Make(DType::kFloat32, {3}, {1, 1, 1}), sum);
  ASSERT_THAT(queue().Synchronize(), testing::IsOk());
  const Values values = Read(sum);
  EXPECT_EQ(values[0], 1.75);
  EXPECT_TRUE(std::isnan(values[1]));
  EXPECT_EQ(values[2], 3);
}

TEST_P(OpsSuite, ElementwiseOpsAreTheirFormulas) {
  for (const auto& [dtype, epsilon] : kComputeDTypes) {
    SCOPED_TRACE(DTypeName(dtype));
    const auto a = Make(dtype, {5, 37}, Uniform(185));
    const auto b = Make(dtype, {5, 37}, Uniform(185));
    const auto bias = Make(dtype, {37}, Uniform(37));
    const Values left = Read(a);
    const Values right = Read(b);
    const Values shift = Read(bias);
    Values sum, shifted;
    for (std::size_t i = 0; i < left.size(); ++i) {
      sum.push_back(left[i] + right[i]);
      shifted.push_back(left[i] + shift[i % 37]);
    }
    const auto out = Poisoned(dtype, {5, 37});
    ops().Add(queue(), a, b, out);
    EXPECT_THAT(Read(out), NearValues(sum, epsilon));
    ops().Cast(queue(), a, out);
    ops().AddBias(queue(), out, bias);
    EXPECT_THAT(Read(out), NearValues(shifted, epsilon));
    ops().Add(queue(), a, b, b);
    EXPECT_THAT(Read(b), NearValues(sum, epsilon)) << "in place";
    ops().Fill(queue(), out, -1.5);
    EXPECT_EQ(Read(out), Values(185, -1.5));
  }
}

TEST_P(OpsSuite, BiasBackwardSumsRowsWithAnyNumberOfThreads) {
  constexpr std::int64_t kRows = 1003;
  constexpr std::int64_t kColumns = 131;
  const auto dy = Make(DType::kFloat32, {kRows, kColumns}, Uniform(kRows * kColumns));
  Values want(kColumns, 1.0);
  const Values values = Read(dy);
  for (std::size_t i = 0; i < values.size(); ++i) want[i % kColumns] += values[i];
  ExpectSameWithAnyThreads([&] {
    const auto dbias = Make(DType::kFloat32, {kColumns}, Values(kColumns, 1.0));
    ops().BiasBackward(queue(), dy, Added(dbias));
    EXPECT_THAT(Read(dbias), NearValues(want, 1e-6));
    return std::vector<Values>{Read(dbias)};
  });
  ops().BiasBackward(queue(), dy, {});  // frozen
  ExpectStoresWhatItAddsToZeros(
      {kColumns}, [&](const Gradient& dbias) { ops().BiasBackward(queue(), dy, dbias); });
}

TEST(ExpTest, IsWithinOneUnitInTheLastPlace) {
  double worst = 0;
  for (double at = -104; at < 88.72; at += 0.00137) {
    const auto x = static_cast<float>(at);
    const double want = std::exp(static_cast<double>(x));
    const double unit = std::ldexp(1.0, std::max(std::ilogb(want) - 23, -149));
    worst = std::max(worst, std::abs(static_cast<double>(Exp(x)) - want) / unit);
  }
  EXPECT_LE(worst, 1);
  EXPECT_EQ(Exp(0.0F), 1);
  EXPECT_EQ(Exp(-1e30F), 0);
  EXPECT_TRUE(std::isinf(Exp(1e30F)));
  EXPECT_TRUE(std::isnan(Exp(std::nanf(""))));
}

}  // namespace
}  // namespace ckpt::trainer

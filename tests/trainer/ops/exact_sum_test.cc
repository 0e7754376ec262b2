#include "trainer/ops/exact_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tests/testing/test_seed.h"

namespace ckpt::trainer {
namespace {

__extension__ using Int128 = __int128;

constexpr double kTiny = std::numeric_limits<double>::denorm_min();
constexpr double kHuge = std::numeric_limits<double>::max();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

constexpr std::uint64_t kDefaultSeed = 20261121;

double Sum(const std::vector<double>& terms) {
  ExactSum sum;
  for (const double term : terms) sum.Add(term);
  return sum.Value();
}

// Any finite double.
double RandomDouble(std::mt19937_64& rng) {
  double value = kInfinity;
  while (!std::isfinite(value)) value = std::bit_cast<double>(rng());
  return value;
}

TEST(ExactSumTest, MatchesIntegerArithmeticAtEveryScale) {
  const std::uint64_t seed = testing::TestSeed(kDefaultSeed);
  SCOPED_TRACE(::testing::Message() << "replay: CKPT_TEST_SEED=" << seed);
  std::mt19937_64 rng(seed);
  for (int trial = 0; trial < 20'000; ++trial) {
    const int scale = static_cast<int>(rng() % 1900) - 1074;
    Int128 want = 0;
    std::vector<double> terms(rng() % 40);
    for (double& term : terms) {
      const auto significand = static_cast<std::int64_t>(rng() >> (11 + rng() % 50));
      const int exponent = static_cast<int>(rng() % 62);
      const std::int64_t sign = rng() % 2 == 0 ? 1 : -1;
      want += static_cast<Int128>(sign * significand) * (std::int64_t{1} << exponent);
      term = std::ldexp(static_cast<double>(sign * significand), scale + exponent);
    }
    // The conversion rounds to nearest even; nothing is lost below 2⁻¹⁰⁷⁴.
    ASSERT_EQ(Sum(terms), std::ldexp(static_cast<double>(want), scale)) << "trial " << trial;
  }
}

TEST(ExactSumTest, OrderAndSharingDoNotMatter) {
  const std::uint64_t seed = testing::TestSeed(kDefaultSeed);
  SCOPED_TRACE(::testing::Message() << "replay: CKPT_TEST_SEED=" << seed);
  std::mt19937_64 rng(seed);
  for (int trial = 0; trial < 500; ++trial) {
    std::vector<double> terms(200);
    for (double& term : terms) term = RandomDouble(rng) / 256;
    const double want = Sum(terms);
    std::shuffle(terms.begin(), terms.end(), rng);
    ASSERT_EQ(Sum(terms), want);
    std::vector<ExactSum> parts(rng() % 8 + 1);
    for (const double term : terms) parts[rng() % parts.size()].Add(term);
    for (std::size_t p = 1; p < parts.size(); ++p) {
      for (std::size_t i = 0; i < ExactSum::kLimbs; ++i) {
        parts[0].limbs()[i] += parts[p].limbs()[i];
      }
    }
    ASSERT_EQ(parts[0].Value(), want);
  }
}

TEST(ExactSumTest, OneTermIsItself) {
  const std::uint64_t seed = testing::TestSeed(kDefaultSeed);
  std::mt19937_64 rng(seed);
  for (int trial = 0; trial < 20'000; ++trial) {
    const double term = RandomDouble(rng);
    ASSERT_EQ(Sum({term}), term) << "replay: CKPT_TEST_SEED=" << seed;
  }
  for (const double term : {kTiny, -kTiny, kHuge, -kHuge, 0x1p-1022, 0x1p-1022 - kTiny, 1.0}) {
    EXPECT_EQ(Sum({term}), term);
  }
}

TEST(ExactSumTest, RoundsTiesToEvenAndAnythingBeyondUp) {
  EXPECT_EQ(Sum({0x1p53, 1}), 0x1p53);
  EXPECT_EQ(Sum({0x1p53, 1, kTiny}), 0x1p53 + 2);
  EXPECT_EQ(Sum({0x1p53, 1, -kTiny}), 0x1p53);
  EXPECT_EQ(Sum({0x1p53 + 2, 1}), 0x1p53 + 4);
  EXPECT_EQ(Sum({-0x1p53 - 2, -1}), -0x1p53 - 4);
  EXPECT_EQ(Sum({0x1p54 - 2, 1}), 0x1p54);  // carries into the next power
}

TEST(ExactSumTest, HugeTermsCancelAndLeaveTheTinyOnes) {
  EXPECT_EQ(Sum({kHuge, kTiny, -kHuge}), kTiny);
  EXPECT_EQ(Sum({kHuge, kHuge, -kTiny, -kHuge, -kHuge}), -kTiny);
  EXPECT_EQ(Sum({kTiny, -kTiny}), 0);
  EXPECT_FALSE(std::signbit(Sum({-1, 1})));
  EXPECT_EQ(Sum({}), 0);
}

TEST(ExactSumTest, OverflowsToInfinityOnlyIfTheSumDoes) {
  EXPECT_EQ(Sum({kHuge, kHuge}), kInfinity);
  EXPECT_EQ(Sum({-kHuge, -kHuge}), -kInfinity);
  EXPECT_EQ(Sum({kHuge, kHuge, -kHuge}), kHuge);
  EXPECT_EQ(Sum({kHuge, 0x1p969}), kHuge);      // less than half a step past the largest
  EXPECT_EQ(Sum({kHuge, 0x1p970}), kInfinity);  // half a step: the even neighbour is 2¹⁰²⁴
}

TEST(ExactSumTest, ATermThatIsNotFiniteMakesItNan) {
  for (const double bad : {kInfinity, -kInfinity, std::nan("")}) {
    EXPECT_TRUE(std::isnan(Sum({1, bad, 2})));
    ExactSum part;
    part.Add(bad);
    ExactSum all;
    all.Add(1);
    for (std::size_t i = 0; i < ExactSum::kLimbs; ++i) all.limbs()[i] += part.limbs()[i];
    EXPECT_TRUE(std::isnan(all.Value()));
  }
}

}  // namespace
}  // namespace ckpt::trainer

#include "tools/ckpt-inspect/element_diff.h"

#include <algorithm>
#include <bit>
#include <initializer_list>
#include <limits>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/endian.h"
#include "core/tensor/cast.h"
#include "tests/testing/test_seed.h"
#include "tests/tools/ckpt-inspect/fake_source.h"

namespace ckpt::inspect {
namespace {

using ::ckpt::testing::BytesOf;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr Tolerance kExact = {};

ElementDiff Compare(DType a_dtype, const Bytes& a, DType b_dtype, const Bytes& b,
                    const Tolerance& tolerance = kExact) {
  ElementComparer comparer(a_dtype, b_dtype, tolerance);
  comparer.Add(a, b);
  return comparer.diff();
}

template <typename T>
ElementDiff Compare(DType dtype, std::initializer_list<T> a, std::initializer_list<T> b,
                    const Tolerance& tolerance = kExact) {
  return Compare(dtype, BytesOf<T>(a), dtype, BytesOf<T>(b), tolerance);
}

Tolerance Within(double absolute, double relative) {
  return {.exact = false, .absolute = absolute, .relative = relative};
}

TEST(ElementDiffTest, EqualBitsAreEqual) {
  const Bytes values = BytesOf<float>({1, -0.0F, NAN, INFINITY});
  const ElementDiff diff = Compare(DType::kFloat32, values, DType::kFloat32, values);
  EXPECT_EQ(diff.num_elements, 4);
  EXPECT_EQ(diff.num_differing, 0);
  EXPECT_FALSE(diff.max_abs);
  EXPECT_FALSE(diff.first);
}

TEST(ElementDiffTest, CountsAndPlacesDifferences) {
  const ElementDiff diff = Compare<float>(DType::kFloat32, {1, 2, 3, 4}, {1, 2.5F, 3, 1});
  EXPECT_EQ(diff.num_differing, 2);
  EXPECT_EQ(diff.max_abs, 3.0L);
  ASSERT_TRUE(diff.first);
  EXPECT_EQ(diff.first->position, 1);
  EXPECT_EQ(LoadLe<float>(diff.first->a.data()), 2.0F);
  EXPECT_EQ(LoadLe<float>(diff.first->b.data()), 2.5F);
}

TEST(ElementDiffTest, ZerosOfTwoSignsDifferByZero) {
  const ElementDiff diff = Compare<float>(DType::kFloat32, {0.0F}, {-0.0F});
  EXPECT_EQ(diff.num_differing, 1);
  EXPECT_EQ(diff.max_abs, 0.0L);
  EXPECT_EQ(Compare<float>(DType::kFloat32, {0.0F}, {-0.0F}, Within(0, 0)).num_differing, 0);
}

// NaNs are compared by their bits, with a tolerance too.
TEST(ElementDiffTest, ANanEqualsOnlyItsOwnBits) {
  const auto quiet = std::bit_cast<float>(0x7fc00000U);
  const auto other = std::bit_cast<float>(0x7fc00001U);
  for (const Tolerance& tolerance : {kExact, Within(1e9, 1e9)}) {
    const ElementDiff diff = Compare<float>(DType::kFloat32, {quiet, quiet, 1, quiet},
                                            {quiet, other, quiet, 1}, tolerance);
    EXPECT_EQ(diff.num_differing, 3);
    EXPECT_EQ(diff.num_nan, 3);
    EXPECT_FALSE(diff.max_abs);
    EXPECT_EQ(diff.first->position, 1);
  }
}

TEST(ElementDiffTest, InfinitiesAreCloseToNothing) {
  const ElementDiff diff =
      Compare<double>(DType::kFloat64, {kInf, kInf, kInf}, {kInf, -kInf, 1}, Within(1, 1));
  EXPECT_EQ(diff.num_differing, 2);
  EXPECT_EQ(diff.num_nan, 0);
  EXPECT_EQ(diff.max_abs, std::numeric_limits<long double>::infinity());
}

TEST(ElementDiffTest, ToleranceGrowsWithB) {
  EXPECT_EQ(Compare<float>(DType::kFloat32, {11}, {10}, Within(0, 0.1)).num_differing, 0);
  EXPECT_EQ(Compare<float>(DType::kFloat32, {10}, {11}, Within(0, 0.09)).num_differing, 1);
  EXPECT_EQ(Compare<float>(DType::kFloat32, {11}, {10}, Within(0.5, 0.05)).num_differing, 0);
  EXPECT_EQ(Compare<float>(DType::kFloat32, {11}, {10}, Within(0.5, 0.04)).num_differing, 1);
}

TEST(ElementDiffTest, IntegersKeepAllBits) {
  const ElementDiff diff =
      Compare<std::int64_t>(DType::kInt64, {INT64_MIN, INT64_MAX}, {INT64_MAX, INT64_MAX - 1});
  EXPECT_EQ(diff.num_differing, 2);
  EXPECT_EQ(diff.max_abs, 18446744073709551615.0L);
}

TEST(ElementDiffTest, ComplexDifferencesAreDistances) {
  const ElementDiff diff = Compare<float>(DType::kComplex64, {1, 1, 5, 5}, {1, 1, 2, 1});
  EXPECT_EQ(diff.num_elements, 2);
  EXPECT_EQ(diff.num_differing, 1);
  EXPECT_EQ(diff.max_abs, 5.0L);
  EXPECT_EQ(diff.first->position, 1);
}

TEST(ElementDiffTest, BothNumbersOfAPairCount) {
  // 0x20 is (0, 1), 0x51 is (0.5, 3).
  const ElementDiff diff = Compare<std::uint8_t>(DType::kFloat4E2m1fnX2, {0x20}, {0x51});
  EXPECT_EQ(diff.num_differing, 1);
  EXPECT_EQ(diff.max_abs, 2.0L);
}

TEST(ElementDiffTest, TwoDtypesCompareByTheirNumbers) {
  const Bytes wide = BytesOf<float>({1, 0.1F, NAN, -2});
  Bytes narrow(8);
  CastElements(DType::kFloat32, wide, DType::kBfloat16, narrow);
  const ElementDiff diff = Compare(DType::kFloat32, wide, DType::kBfloat16, narrow);
  EXPECT_EQ(diff.num_differing, 2);  // 0.1 and the NaN
  EXPECT_EQ(diff.num_nan, 1);
  EXPECT_EQ(diff.first->position, 1);
  EXPECT_EQ(diff.max_abs, static_cast<long double>(static_cast<double>(0.10009765625) - 0.1F));
  EXPECT_EQ(Compare(DType::kInt64, BytesOf<std::int64_t>({3, 4}), DType::kFloat64,
                    BytesOf<double>({3, 4.5}))
                .num_differing,
            1);
}

// What vectors compute stripe by stripe is what one element after the other gives.
TEST(ElementDiffTest, StripesAgreeWithSingleElements) {
  std::mt19937_64 random(::ckpt::testing::TestSeed(20));
  constexpr std::size_t kCount = 5000;  // a stripe and a part of one
  for (int d = 0; d < kNumDTypes; ++d) {
    const auto dtype = static_cast<DType>(d);
    const std::uint64_t size = ElementBytes(dtype);
    Bytes a(kCount * size);
    for (std::byte& byte : a) byte = static_cast<std::byte>(random());
    Bytes b = a;
    for (int change = 0; change < 300; ++change) {
      b[random() % b.size()] ^= static_cast<std::byte>(1U << (random() % 8));
    }
    for (const Tolerance& tolerance : {kExact, Within(0.25, 0.01)}) {
      const ElementDiff all = Compare(dtype, a, dtype, b, tolerance);
      ElementDiff sum;
      for (std::size_t i = 0; i < kCount; ++i) {
        const auto one = [&](const Bytes& bytes) {
          const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(i * size);
          return Bytes(begin, begin + static_cast<std::ptrdiff_t>(size));
        };
        const ElementDiff diff = Compare(dtype, one(a), dtype, one(b), tolerance);
        sum.num_differing += diff.num_differing;
        sum.num_nan += diff.num_nan;
        if (diff.max_abs) sum.max_abs = std::max(sum.max_abs.value_or(0), *diff.max_abs);
        if (diff.first && !sum.first) {
          sum.first = diff.first;
          sum.first->position = static_cast<std::int64_t>(i);
        }
      }
      SCOPED_TRACE(DTypeName(dtype));
      EXPECT_EQ(all.num_elements, static_cast<std::int64_t>(kCount));
      EXPECT_EQ(all.num_differing, sum.num_differing);
      EXPECT_EQ(all.num_nan, sum.num_nan);
      EXPECT_EQ(all.max_abs, sum.max_abs);
      ASSERT_EQ(all.first.has_value(), sum.first.has_value());
      if (all.first) {
        EXPECT_EQ(all.first->position, sum.first->position);
        EXPECT_EQ(all.first->a, sum.first->a);
        EXPECT_EQ(all.first->b, sum.first->b);
      }
    }
  }
}

}  // namespace
}  // namespace ckpt::inspect

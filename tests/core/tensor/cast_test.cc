#include "core/tensor/cast.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include <gmock/gmock.h>

namespace ckpt {
namespace {

struct CastCase {
  const char* name;
  float in;
  std::uint16_t want_bits;
};
void PrintTo(const CastCase& c, std::ostream* os) { *os << c.name; }

const auto kCaseName = [](const auto& test) { return std::string(test.param.name); };

class ToBf16Test : public ::testing::TestWithParam<CastCase> {};

TEST_P(ToBf16Test, RoundsToNearestEven) {
  EXPECT_EQ(ToBf16Bits(GetParam().in), GetParam().want_bits);
}

INSTANTIATE_TEST_SUITE_P(
    Edges, ToBf16Test,
    ::testing::Values(CastCase{"Zero", 0.0F, 0x0000}, CastCase{"MinusZero", -0.0F, 0x8000},
                      CastCase{"One", 1.0F, 0x3F80},
                      CastCase{"TieGoesDownToEven", 1.00390625F, 0x3F80},
                      CastCase{"TieGoesUpToEven", 1.01171875F, 0x3F82},
                      CastCase{"JustAboveATieGoesUp", std::bit_cast<float>(0x3F808001U), 0x3F81},
                      CastCase{"LargestFiniteOverflows", std::numeric_limits<float>::max(), 0x7F80},
                      CastCase{"Infinity", std::numeric_limits<float>::infinity(), 0x7F80},
                      CastCase{"SmallestSubnormal", std::bit_cast<float>(0x00000001U), 0x0000},
                      CastCase{"SubnormalKept", std::bit_cast<float>(0x00010000U), 0x0001},
                      CastCase{"SubnormalTieToEven", std::bit_cast<float>(0x00018000U), 0x0002}),
    kCaseName);

class ToFp16Test : public ::testing::TestWithParam<CastCase> {};

TEST_P(ToFp16Test, RoundsToNearestEven) {
  EXPECT_EQ(ToFp16Bits(GetParam().in), GetParam().want_bits);
}

INSTANTIATE_TEST_SUITE_P(
    Edges, ToFp16Test,
    ::testing::Values(CastCase{"Zero", 0.0F, 0x0000}, CastCase{"MinusTwo", -2.0F, 0xC000},
                      CastCase{"Largest", 65504.0F, 0x7BFF},
                      CastCase{"BelowTheOverflowTie", 65519.996F, 0x7BFF},
                      CastCase{"OverflowTieGoesToInfinity", 65520.0F, 0x7C00},
                      CastCase{"TieGoesDownToEven", 1.00048828125F, 0x3C00},
                      CastCase{"TieGoesUpToEven", 1.00146484375F, 0x3C02},
                      CastCase{"SmallestNormal", 6.103515625e-05F, 0x0400},
                      CastCase{"LargestSubnormal", 6.097555160522461e-05F, 0x03FF},
                      CastCase{"SmallestSubnormal", 5.960464477539063e-08F, 0x0001},
                      CastCase{"HalfOfItTiesToZero", 2.9802322387695312e-08F, 0x0000},
                      CastCase{"MoreThanHalfOfItGoesUp", 2.9802326e-08F, 0x0001},
                      CastCase{"Infinity", -std::numeric_limits<float>::infinity(), 0xFC00}),
    kCaseName);

TEST(Cast, NansStayNans) {
  // The payload lies in bits that narrowing drops: truncating would give an infinity.
  const float nan = std::bit_cast<float>(0x7F800001U);
  EXPECT_TRUE(std::isnan(FromBf16Bits(ToBf16Bits(nan))));
  EXPECT_TRUE(std::isnan(FromFp16Bits(ToFp16Bits(nan))));
  EXPECT_TRUE(std::isnan(FromBf16Bits(ToBf16Bits(-nan))));
}

TEST(Cast, EveryBf16AndFp16ValueSurvivesWidening) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float bf16 = FromBf16Bits(half);
    const float fp16 = FromFp16Bits(half);
    EXPECT_TRUE(std::isnan(bf16) || ToBf16Bits(bf16) == half) << half;
    EXPECT_TRUE(std::isnan(fp16) || ToFp16Bits(fp16) == half) << half;
  }
}

template <typename To, typename From>
std::vector<To> Cast(DType from, const std::vector<From>& in, DType to, std::uint64_t& overflows) {
  std::vector<To> out(in.size());
  overflows =
      CastElements(from, std::as_bytes(std::span(in)), to, std::as_writable_bytes(std::span(out)));
  return out;
}

TEST(CastElements, CountsFiniteValuesThatBecomeInfinite) {
  std::uint64_t overflows = 0;
  const std::vector<float> in = {1.0F, 70000.0F, -1e30F, std::numeric_limits<float>::infinity()};
  const auto out = Cast<std::uint16_t>(DType::kFloat32, in, DType::kFloat16, overflows);
  EXPECT_THAT(out, ::testing::ElementsAre(0x3C00, 0x7C00, 0xFC00, 0x7C00));
  EXPECT_EQ(overflows, 2U);
}

TEST(CastElements, WidensExactly) {
  std::uint64_t overflows = 0;
  const std::vector<std::uint16_t> in = {0x3F80, 0xC000, 0x0001};
  EXPECT_THAT(Cast<float>(DType::kBfloat16, in, DType::kFloat32, overflows),
              ::testing::ElementsAre(1.0F, -2.0F, std::bit_cast<float>(0x00010000U)));
  EXPECT_THAT(
      Cast<double>(DType::kFloat16, std::vector<std::uint16_t>{0x0001}, DType::kFloat64, overflows),
      ::testing::ElementsAre(5.960464477539063e-08));
  EXPECT_EQ(overflows, 0U);
}

// 1 + 2⁻⁸ + 2⁻⁴⁰ lies above a tie of bfloat16; through float32 it would become the tie and go down.
TEST(CastElements, NarrowsFloat64WithOneRounding) {
  std::uint64_t overflows = 0;
  const std::vector<double> in = {1.0 + std::ldexp(1.0, -8) + std::ldexp(1.0, -40)};
  EXPECT_THAT(Cast<std::uint16_t>(DType::kFloat64, in, DType::kBfloat16, overflows),
              ::testing::ElementsAre(0x3F81));
  EXPECT_THAT(Cast<std::uint16_t>(DType::kFloat64,
                                  std::vector{1.0 + std::ldexp(1.0, -11) + std::ldexp(1.0, -40)},
                                  DType::kFloat16, overflows),
              ::testing::ElementsAre(0x3C01));
}

}  // namespace
}  // namespace ckpt

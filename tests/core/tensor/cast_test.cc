#include "core/tensor/cast.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
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

// One element after the other, by the definition: the value as a double, rounded once by scaling
// and rint.
class OneByOne {
 public:
  static double Value(DType dtype, std::uint64_t bits) {
    if (dtype == DType::kFloat64) return std::bit_cast<double>(bits);
    if (dtype == DType::kFloat32) return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    return dtype == DType::kBfloat16 ? Decode<8, 7>(bits) : Decode<5, 10>(bits);
  }
  static std::uint64_t Bits(DType dtype, double value) {
    if (dtype == DType::kFloat64) return std::bit_cast<std::uint64_t>(value);
    if (dtype == DType::kFloat32) return Encode<8, 23>(value);
    return dtype == DType::kBfloat16 ? Encode<8, 7>(value) : Encode<5, 10>(value);
  }

 private:
  template <int kExponent, int kMantissa>
  static double Decode(std::uint64_t bits) {
    constexpr int kBias = (1 << (kExponent - 1)) - 1;
    const bool is_negative = (bits >> (kExponent + kMantissa)) & 1U;
    const auto exponent = static_cast<int>((bits >> kMantissa) & ((1U << kExponent) - 1));
    const std::uint64_t mantissa = bits & ((1ULL << kMantissa) - 1);
    if (exponent == (1 << kExponent) - 1) {
      const std::uint64_t sign = is_negative ? 1ULL << 63 : 0;
      const std::uint64_t quiet = mantissa != 0 ? 1ULL << 51 : 0;
      return std::bit_cast<double>(sign | 0x7FF0000000000000ULL | mantissa << (52 - kMantissa) |
                                   quiet);
    }
    const std::uint64_t implied = exponent == 0 ? 0 : 1ULL << kMantissa;
    const double magnitude = std::ldexp(static_cast<double>(mantissa | implied),
                                        std::max(exponent, 1) - kBias - kMantissa);
    return is_negative ? -magnitude : magnitude;
  }

  template <int kExponent, int kMantissa>
  static std::uint64_t Encode(double value) {
    constexpr int kBias = (1 << (kExponent - 1)) - 1;
    constexpr std::uint64_t kInfinity = ((1ULL << kExponent) - 1) << kMantissa;
    const auto bits = std::bit_cast<std::uint64_t>(value);
    const std::uint64_t sign = (bits >> 63) << (kExponent + kMantissa);
    if (std::isnan(value)) {
      const std::uint64_t payload = (bits & ((1ULL << 52) - 1)) >> (52 - kMantissa);
      return sign | kInfinity | payload | 1ULL << (kMantissa - 1);
    }
    if (std::isinf(value)) return sign | kInfinity;
    if (value == 0) return sign;
    const double magnitude = std::fabs(value);
    const int exponent = std::max(std::ilogb(magnitude), 1 - kBias);
    const auto mantissa =
        static_cast<std::uint64_t>(std::rint(std::ldexp(magnitude, kMantissa - exponent)));
    const std::uint64_t encoded =
        mantissa + (static_cast<std::uint64_t>(exponent + kBias - 1) << kMantissa);
    return sign | std::min(encoded, kInfinity);
  }
};

struct Pair {
  DType from;
  DType to;
};
void PrintTo(const Pair& pair, std::ostream* os) {
  *os << DTypeName(pair.from) << " to " << DTypeName(pair.to);
}

// Bits of `dtype`: all that 16 of them can be; of more the edges of the narrower types, what lies
// around them, and noise.
std::vector<std::uint64_t> Inputs(DType dtype) {
  std::vector<std::uint64_t> inputs;
  const std::uint64_t width = 8 * ElementBytes(dtype);
  if (width == 16) {
    for (std::uint64_t bits = 0; bits < 0x10000; ++bits) inputs.push_back(bits);
    return inputs;
  }
  std::mt19937_64 rng(20261123);
  for (int i = 0; i < 100'000; ++i) inputs.push_back(rng() >> (64 - width));
  // Every value of a narrower type and the ties between them, one step of the last place up and
  // down.
  for (const DType narrow : {DType::kFloat16, DType::kBfloat16}) {
    for (std::uint64_t bits = 0; bits < 0x10000; bits += 3) {
      const double value = OneByOne::Value(narrow, bits);
      const double next = OneByOne::Value(narrow, bits + 1);
      for (const double near : {value, value / 2 + next / 2}) {
        const std::uint64_t exact = OneByOne::Bits(dtype, near);
        for (const std::uint64_t step : {0ULL, 1ULL, ~0ULL}) {
          inputs.push_back((exact + step) & (~0ULL >> (64 - width)));
        }
      }
    }
  }
  const std::uint64_t infinity = OneByOne::Bits(dtype, std::numeric_limits<double>::infinity());
  for (std::uint64_t step = 0; step < 64; ++step) {
    inputs.push_back(infinity + (1ULL << step >> (64 - width)));  // NaNs that signal, too
    inputs.push_back(infinity - step);
  }
  return inputs;
}

class EveryCastTest : public ::testing::TestWithParam<Pair> {};

TEST_P(EveryCastTest, GivesTheBitsOfTheDefinition) {
  const auto [from, to] = GetParam();
  const std::vector<std::uint64_t> inputs = Inputs(from);
  Bytes in(inputs.size() * ElementBytes(from));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    std::memcpy(in.data() + i * ElementBytes(from), &inputs[i], ElementBytes(from));
  }
  Bytes out(inputs.size() * ElementBytes(to));
  const std::uint64_t overflows = CastElements(from, in, to, out);
  // Few elements at once go through the portable loops.
  Bytes portable(out.size());
  std::uint64_t portable_overflows = 0;
  for (std::size_t begin = 0, end = 0; begin < inputs.size(); begin = end) {
    end = std::min(begin + 7, inputs.size());
    portable_overflows += CastElements(
        from, ByteSpan(in).subspan(begin * ElementBytes(from), (end - begin) * ElementBytes(from)),
        to,
        MutableByteSpan(portable).subspan(begin * ElementBytes(to),
                                          (end - begin) * ElementBytes(to)));
  }
  EXPECT_TRUE(portable == out);
  EXPECT_EQ(portable_overflows, overflows);
  std::uint64_t expected_overflows = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    double value = OneByOne::Value(from, inputs[i]);
    std::uint64_t expected = OneByOne::Bits(to, value);
    // The bits of a bfloat16 are the upper half of a float32: a NaN that signals goes on doing so.
    if (from == DType::kBfloat16 && to == DType::kFloat32) expected = inputs[i] << 16;
    expected_overflows +=
        std::isfinite(value) && std::isinf(OneByOne::Value(to, expected)) ? 1U : 0U;
    std::uint64_t actual = 0;
    std::memcpy(&actual, out.data() + i * ElementBytes(to), ElementBytes(to));
    ASSERT_EQ(actual, expected) << std::hex << inputs[i];
  }
  EXPECT_EQ(overflows, expected_overflows);
}

std::vector<Pair> AllPairs() {
  std::vector<Pair> pairs;
  const std::vector<DType> types = {DType::kFloat16, DType::kBfloat16, DType::kFloat32,
                                    DType::kFloat64};
  for (const DType from : types) {
    for (const DType to : types) {
      if (from != to) pairs.push_back({from, to});
    }
  }
  return pairs;
}

INSTANTIATE_TEST_SUITE_P(Pairs, EveryCastTest, ::testing::ValuesIn(AllPairs()),
                         [](const auto& test) {
                           return fmt::format("{}_to_{}", DTypeName(test.param.from),
                                              DTypeName(test.param.to));
                         });

TEST(CommonDtype, HoldsTheValuesOfBoth) {
  EXPECT_EQ(CommonDtype(DType::kBfloat16, DType::kBfloat16), DType::kBfloat16);
  EXPECT_EQ(CommonDtype(DType::kBfloat16, DType::kFloat16), DType::kFloat32);
  EXPECT_EQ(CommonDtype(DType::kFloat16, DType::kFloat32), DType::kFloat32);
  EXPECT_EQ(CommonDtype(DType::kFloat64, DType::kFloat32), DType::kFloat64);
  EXPECT_EQ(CommonDtype(DType::kInt32, DType::kFloat32), std::nullopt);
  EXPECT_EQ(CommonDtype(DType::kInt32, DType::kInt32), DType::kInt32);
}

}  // namespace
}  // namespace ckpt

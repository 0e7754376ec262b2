#include "trainer/random/internal/normal_pairs.h"

#include <array>
#include <bit>
#include <cmath>
#include <numbers>

namespace ckpt::trainer {
namespace {

constexpr double kUnit = 0x1p-32;
constexpr double kAngleUnit = 2 * std::numbers::pi * kUnit;

// The functions below have no branches, so that compilers make vector code of the loop around them.
// They are within a relative 2⁻⁴⁶ of the exact functions, and libraries within 2⁻⁵¹, so a product
// of two has less than this error. Where both ends of the error round to one float,
// that is the library's too.
constexpr double kError = 0x1p-40;

// n < 2⁵².
double ToDouble(std::uint64_t n) {
  constexpr std::uint64_t kTwoTo52 = 0x4330000000000000;
  return std::bit_cast<double>(kTwoTo52 | n) - 0x1p52;
}

// u: normal and positive. log u = k·log 2 + 2·atanh(s), where u = 2ᵏ·m, m is within a factor of √2
// of 1, and s = (m - 1)/(m + 1).
double Log(double u) {
  constexpr std::uint64_t kOne = 0x3FF0000000000000;
  constexpr std::uint64_t kRootHalf = 0x3FE6A09E667F3BCD;
  constexpr std::uint64_t kMantissa = 0x000FFFFFFFFFFFFF;
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(u) + (kOne - kRootHalf);
  const double k = ToDouble(bits >> 52U) - 1023;
  const auto m = std::bit_cast<double>((bits & kMantissa) + kRootHalf);
  const double s = (m - 1) / (m + 1);
  const double z = s * s;
  double sum = 1.0 / 21;
  for (const double odd : {19.0, 17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0}) {
    sum = sum * z + 1 / odd;
  }
  return k * std::numbers::ln2 + (2 * s + 2 * s * z * sum);
}

// |r| <= π/4 and a little more. Taylor's series to r¹⁸ and r¹⁷.
double Cos(double r) {
  const double t = r * r;
  double sum = -1.0 / 6402373705728000;
  sum = sum * t + 1.0 / 20922789888000;
  sum = sum * t - 1.0 / 87178291200;
  sum = sum * t + 1.0 / 479001600;
  sum = sum * t - 1.0 / 3628800;
  sum = sum * t + 1.0 / 40320;
  sum = sum * t - 1.0 / 720;
  sum = sum * t + 1.0 / 24;
  sum = sum * t - 1.0 / 2;
  return sum * t + 1;
}
double Sin(double r) {
  const double t = r * r;
  double sum = 1.0 / 355687428096000;
  sum = sum * t - 1.0 / 1307674368000;
  sum = sum * t + 1.0 / 6227020800;
  sum = sum * t - 1.0 / 39916800;
  sum = sum * t + 1.0 / 362880;
  sum = sum * t - 1.0 / 5040;
  sum = sum * t + 1.0 / 120;
  sum = sum * t - 1.0 / 6;
  return r + r * t * sum;
}

// Both ends of what each number of a pair may be before it is rounded.
struct Ends {
  double cosine, cosine_error, sine, sine_error;
};

Ends PairEnds(std::uint32_t radius_bits, std::uint32_t angle_bits) {
  // π/2 in two parts, of which the first has 33 bits, so that small multiples are exact.
  constexpr double kHalfPiHead = 0x1.921fb544p+0;
  constexpr double kHalfPiTail = 0x1.0b4611a626331p-34;
  const double radius = std::sqrt(-2 * Log((ToDouble(radius_bits) + 0.5) * kUnit));
  const std::uint64_t quadrant = (std::uint64_t{angle_bits} + (1U << 29U)) >> 30U;
  const double turns = ToDouble(quadrant);
  const double angle = kAngleUnit * ToDouble(angle_bits);
  const double r = (angle - turns * kHalfPiHead) - turns * kHalfPiTail;
  const auto cosine_bits = std::bit_cast<std::uint64_t>(Cos(r));
  const auto sine_bits = std::bit_cast<std::uint64_t>(Sin(r));
  const std::uint64_t swap = 0 - (quadrant & 1U);
  const std::uint64_t cosine_sign = ((quadrant + 1) & 2U) << 62U;
  const std::uint64_t sine_sign = (quadrant & 2U) << 62U;
  const auto cosine =
      std::bit_cast<double>(((cosine_bits & ~swap) | (sine_bits & swap)) ^ cosine_sign);
  const auto sine = std::bit_cast<double>(((sine_bits & ~swap) | (cosine_bits & swap)) ^ sine_sign);
  // At multiples of π/2 themselves, r is what rounding left.
  const double error = std::abs(r) < 0x1p-30 ? 0.5 : kError;
  const double x = radius * cosine;
  const double y = radius * sine;
  return {.cosine = x, .cosine_error = error * x, .sine = y, .sine_error = error * y};
}

}  // namespace

void NormalPair(std::uint32_t radius_bits, std::uint32_t angle_bits, float* out) {
  const double uniform = (radius_bits + 0.5) * kUnit;  // in (0, 1): the logarithm is finite
  const double radius = std::sqrt(-2 * std::log(uniform));
  const double angle = kAngleUnit * angle_bits;
  out[0] = static_cast<float>(radius * std::cos(angle));
  out[1] = static_cast<float>(radius * std::sin(angle));
}

void NormalPairs(std::span<const std::uint32_t, kPairsAtOnce> radius_bits,
                 std::span<const std::uint32_t, kPairsAtOnce> angle_bits,
                 std::span<float, 2 * kPairsAtOnce> out) {
  std::array<float, 2 * kPairsAtOnce> other;
  for (std::size_t i = 0; i < kPairsAtOnce; ++i) {
    const Ends ends = PairEnds(radius_bits[i], angle_bits[i]);
    out[2 * i] = static_cast<float>(ends.cosine - ends.cosine_error);
    other[2 * i] = static_cast<float>(ends.cosine + ends.cosine_error);
    out[2 * i + 1] = static_cast<float>(ends.sine - ends.sine_error);
    other[2 * i + 1] = static_cast<float>(ends.sine + ends.sine_error);
  }
  std::uint32_t differences = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    differences |= std::bit_cast<std::uint32_t>(out[i]) ^ std::bit_cast<std::uint32_t>(other[i]);
  }
  if (differences == 0) return;
  for (std::size_t i = 0; i < kPairsAtOnce; ++i) {
    if (out[2 * i] == other[2 * i] && out[2 * i + 1] == other[2 * i + 1]) continue;
    NormalPair(radius_bits[i], angle_bits[i], &out[2 * i]);
  }
}

}  // namespace ckpt::trainer

#include "core/tensor/cast.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "core/base/check.h"

namespace ckpt {
namespace {

// Rounds a double to a binary float of `kMantissa` stored mantissa bits and `kExponent` exponent
// bits, once, to nearest even; subnormals and overflow included. Serves every narrowing, so that
// none rounds twice.
template <int kExponent, int kMantissa>
std::uint32_t RoundBits(double value) {
  constexpr int kBias = (1 << (kExponent - 1)) - 1;
  constexpr std::uint32_t kInfinity = ((1U << kExponent) - 1) << kMantissa;
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const auto sign = static_cast<std::uint32_t>(bits >> 63) << (kExponent + kMantissa);
  if (std::isnan(value)) {
    // Keep the payload's top bits; a payload lost below them must not turn the NaN into an
    // infinity.
    const auto payload =
        static_cast<std::uint32_t>((bits & ((1ULL << 52) - 1)) >> (52 - kMantissa));
    return sign | kInfinity | payload | (1U << (kMantissa - 1));
  }
  const double magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  int exponent = std::ilogb(magnitude);
  if (exponent < 1 - kBias) exponent = 1 - kBias;  // subnormal: fixed scale
  // Exact scaling by a power of two, so that rint does the only rounding.
  const double scaled =
      std::isinf(magnitude) ? magnitude : std::rint(std::ldexp(magnitude, kMantissa - exponent));
  if (std::isinf(magnitude)) return sign | kInfinity;
  const auto mantissa = static_cast<std::uint64_t>(scaled);
  // A carry out of the mantissa moves into the exponent by itself.
  const std::uint64_t encoded =
      mantissa + (static_cast<std::uint64_t>(exponent + kBias - 1) << kMantissa);
  return sign | (encoded >= kInfinity ? kInfinity : static_cast<std::uint32_t>(encoded));
}

double Load(DType dtype, const std::byte* at) {
  switch (dtype) {
    case DType::kFloat64: {
      double value = 0;
      std::memcpy(&value, at, sizeof value);
      return value;
    }
    case DType::kFloat32: {
      float value = 0;
      std::memcpy(&value, at, sizeof value);
      return value;
    }
    default: {
      std::uint16_t bits = 0;
      std::memcpy(&bits, at, sizeof bits);
      return dtype == DType::kBfloat16 ? FromBf16Bits(bits) : FromFp16Bits(bits);
    }
  }
}

// Returns whether a finite value became infinite.
bool Store(DType dtype, double value, std::byte* at) {
  if (dtype == DType::kFloat64) {
    std::memcpy(at, &value, sizeof value);
    return false;
  }
  if (dtype == DType::kFloat32) {
    const auto narrow = static_cast<float>(value);
    std::memcpy(at, &narrow, sizeof narrow);
    return std::isinf(narrow) && std::isfinite(value);
  }
  const bool is_bf16 = dtype == DType::kBfloat16;
  const auto bits =
      static_cast<std::uint16_t>(is_bf16 ? RoundBits<8, 7>(value) : RoundBits<5, 10>(value));
  std::memcpy(at, &bits, sizeof bits);
  return std::isfinite(value) && std::isinf(is_bf16 ? FromBf16Bits(bits) : FromFp16Bits(bits));
}

// The two common cases, written so that the compiler vectorises them.
void WidenBf16(const std::byte* in, std::byte* out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, in + 2 * i, sizeof bits);
    const std::uint32_t wide = std::uint32_t{bits} << 16;
    std::memcpy(out + 4 * i, &wide, sizeof wide);
  }
}

std::uint64_t NarrowToBf16(const std::byte* in, std::byte* out, std::size_t count) {
  std::uint64_t overflowed = 0;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, in + 4 * i, sizeof bits);
    const std::uint16_t narrow = ToBf16Bits(std::bit_cast<float>(bits));
    std::memcpy(out + 2 * i, &narrow, sizeof narrow);
    overflowed += (narrow & 0x7FFFU) == 0x7F80U && (bits & 0x7FFFFFFFU) < 0x7F800000U ? 1U : 0U;
  }
  return overflowed;
}

}  // namespace

std::uint16_t ToBf16Bits(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x0040U);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

std::uint16_t ToFp16Bits(float value) {
  return static_cast<std::uint16_t>(RoundBits<5, 10>(value));
}

float FromBf16Bits(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

float FromFp16Bits(std::uint16_t bits) {
  const std::uint32_t sign = std::uint32_t{bits & 0x8000U} << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1FU;
  const std::uint32_t mantissa = bits & 0x3FFU;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000U | (mantissa << 13));
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
  return sign != 0 ? -magnitude : magnitude;
}

std::uint64_t CastElements(DType from, ByteSpan in, DType to, MutableByteSpan out) {
  CKPT_CHECK(IsCastable(from) && IsCastable(to));
  const std::size_t count = in.size() / ElementBytes(from);
  CKPT_CHECK(in.size() == count * ElementBytes(from) && out.size() == count * ElementBytes(to));
  if (from == to) {
    if (count != 0) std::memcpy(out.data(), in.data(), in.size());
    return 0;
  }
  if (from == DType::kBfloat16 && to == DType::kFloat32) {
    WidenBf16(in.data(), out.data(), count);
    return 0;
  }
  if (from == DType::kFloat32 && to == DType::kBfloat16) {
    return NarrowToBf16(in.data(), out.data(), count);
  }
  std::uint64_t overflowed = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double value = Load(from, in.data() + i * ElementBytes(from));
    overflowed += Store(to, value, out.data() + i * ElementBytes(to)) ? 1U : 0U;
  }
  return overflowed;
}

}  // namespace ckpt

#include "core/tensor/cast.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>

#include "core/base/check.h"
#include "core/base/widest_vectors.h"

namespace ckpt {
namespace {

// Elements pass through float32, a block at a time, in loops that the compiler vectorises: they branch nowhere, and select
// among results that are all computed. Both stages of a block stay in the cache nearest to the core.
constexpr std::size_t kBlockElements = 2048;

constexpr std::uint32_t kSign32 = 0x80000000U;
constexpr std::uint32_t kInfinity32 = 0x7F800000U;
constexpr std::uint32_t kQuiet32 = 0x00400000U;  // set in a NaN that arithmetic gave
constexpr std::uint32_t kInfinity16 = 0x7C00U;
// Powers of two as bits of a float32.
constexpr std::uint32_t kTwoTo16 = 0x47800000U;
constexpr std::uint32_t kTwoToMinus14 = 0x38800000U;  // the smallest normal float16
constexpr std::uint32_t kHalf = 0x3F000000U;
// The smallest that become infinite.
constexpr std::uint32_t kOverflowsFp16 = 0x477FF000U;
constexpr std::uint32_t kOverflowsBf16 = 0x7F7F8000U;
// What is between the biases of the two exponents, in float32's place, and how far the mantissas' ends are apart.
constexpr std::uint32_t kRebias = 112U << 23;
constexpr int kFp16Shift = 13;

float AsFloat(std::uint32_t bits) { return std::bit_cast<float>(bits); }
std::uint32_t AsBits(float value) { return std::bit_cast<std::uint32_t>(value); }

std::uint32_t Quieted(std::uint32_t bits) {
  return bits | ((bits & ~kSign32) > kInfinity32 ? kQuiet32 : 0U);
}

// Exact, payloads of NaNs included.
std::uint32_t WidenFp16(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000U) << 16;
  const std::uint32_t magnitude = (half & 0x7FFFU) << kFp16Shift;
  const std::uint32_t normal = magnitude + kRebias;
  // Under the smallest normal exponent the leading one is not implied: it is subtracted again.
  const std::uint32_t subnormal =
      AsBits(AsFloat(magnitude + kTwoToMinus14) - AsFloat(kTwoToMinus14));
  const bool is_subnormal = magnitude < (1U << 23);
  const bool is_special = magnitude >= (0x1FU << 23);
  return sign | (is_special ? normal + kRebias : is_subnormal ? subnormal : normal);
}

std::uint16_t NarrowToFp16(std::uint32_t bits) {
  const std::uint32_t sign = (bits & kSign32) >> 16;
  const std::uint32_t magnitude = bits & ~kSign32;
  const std::uint32_t nan = kInfinity16 | 0x0200U | ((magnitude >> kFp16Shift) & 0x03FFU);
  // A carry out of the mantissa moves into the exponent by itself, and out of the largest one gives infinity.
  const std::uint32_t odd = (magnitude >> kFp16Shift) & 1U;
  const std::uint32_t normal = (magnitude - kRebias + 0x0FFFU + odd) >> kFp16Shift;
  // The last bit of 1/2 is worth as much as that of a subnormal float16: the addition rounds.
  const std::uint32_t subnormal = AsBits(AsFloat(magnitude) + AsFloat(kHalf)) - kHalf;
  const std::uint32_t finite = magnitude < kTwoToMinus14 ? subnormal : normal;
  const std::uint32_t number = magnitude < kTwoTo16 ? finite : kInfinity16;
  return static_cast<std::uint16_t>(sign | (magnitude > kInfinity32 ? nan : number));
}

std::uint16_t NarrowToBf16(std::uint32_t bits) {
  const std::uint32_t nan = (bits | kQuiet32) >> 16;
  const std::uint32_t number = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  return static_cast<std::uint16_t>((bits & ~kSign32) > kInfinity32 ? nan : number);
}

// The neighbour towards zero with its last bit set, unless `value` is a float32. That bit stands for all that was cut off,
// so rounding the result once more, to a type of two bits less or more, rounds `value` once.
std::uint32_t RoundToOdd(double value) {
  const auto nearest = static_cast<float>(value);
  const double back = nearest;
  const std::uint32_t away = std::fabs(back) > std::fabs(value) ? 1U : 0U;
  const std::uint32_t is_inexact = (back > value ? 1U : 0U) | (back < value ? 1U : 0U);
  return (AsBits(nearest) - away) | is_inexact;
}

template <typename T>
T Load(const std::byte* from, std::size_t i) {
  T value;
  std::memcpy(&value, from + i * sizeof value, sizeof value);
  return value;
}

template <typename T>
void Store(T value, std::byte* to, std::size_t i) {
  std::memcpy(to + i * sizeof value, &value, sizeof value);
}

#if defined(__x86_64__) && defined(__GNUC__)
// The processor's own conversion, eight elements at a time; it gives the bits of NarrowToFp16. Returns how many it made.
[[gnu::noinline, gnu::target("avx2,f16c")]] std::size_t NarrowEightsToFp16(const std::byte* in,
                                                                           std::byte* out,
                                                                           std::size_t count) {
  constexpr std::size_t kEight = 8;
  std::size_t done = 0;
  for (; done + kEight <= count; done += kEight) {
    const __m256i bits =
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + done * sizeof(float)));
    const __m128i halves = _mm256_cvtps_ph(_mm256_castsi256_ps(bits), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + done * sizeof(std::uint16_t)), halves);
  }
  return done;
}

std::size_t NarrowFirstToFp16(const std::byte* in, std::byte* out, std::size_t count) {
  static const bool has_f16c = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  return has_f16c ? NarrowEightsToFp16(in, out, count) : 0;
}
#else
std::size_t NarrowFirstToFp16(const std::byte*, std::byte*, std::size_t) { return 0; }
#endif

// Elements of `from` to float32; to those that a narrower target rounds (`to_odd`), or to those that are the target.
// Returns how many finite values became infinite.
std::uint64_t ToFloat32(DType from, const std::byte* in, bool to_odd, std::byte* out,
                        std::size_t count) {
  std::uint32_t overflowed = 0;
  if (from == DType::kBfloat16) {
    for (std::size_t i = 0; i < count; ++i) {
      Store(std::uint32_t{Load<std::uint16_t>(in, i)} << 16, out, i);
    }
  } else if (from == DType::kFloat16) {
    for (std::size_t i = 0; i < count; ++i) {
      Store(Quieted(WidenFp16(Load<std::uint16_t>(in, i))), out, i);
    }
  } else if (to_odd) {
    for (std::size_t i = 0; i < count; ++i) Store(RoundToOdd(Load<double>(in, i)), out, i);
  } else {
    for (std::size_t i = 0; i < count; ++i) {
      const auto value = Load<double>(in, i);
      const auto nearest = static_cast<float>(value);
      const bool is_finite = std::fabs(value) < std::numeric_limits<double>::infinity();
      overflowed += (AsBits(nearest) & ~kSign32) == kInfinity32 && is_finite ? 1U : 0U;
      Store(nearest, out, i);
    }
  }
  return overflowed;
}

// The way back. Returns how many finite values became infinite.
std::uint64_t FromFloat32(DType to, const std::byte* in, std::byte* out, std::size_t count) {
  const auto overflows = [](std::uint32_t bits, std::uint32_t least) {
    const std::uint32_t magnitude = bits & ~kSign32;
    return magnitude - least < kInfinity32 - least ? 1U : 0U;
  };
  std::uint32_t overflowed = 0;
  if (to == DType::kFloat64) {
    for (std::size_t i = 0; i < count; ++i) Store<double>(Load<float>(in, i), out, i);
  } else if (to == DType::kBfloat16) {
    for (std::size_t i = 0; i < count; ++i) {
      const auto bits = Load<std::uint32_t>(in, i);
      overflowed += overflows(bits, kOverflowsBf16);
      Store(NarrowToBf16(bits), out, i);
    }
  } else {
    for (std::size_t i = NarrowFirstToFp16(in, out, count); i < count; ++i) {
      Store(NarrowToFp16(Load<std::uint32_t>(in, i)), out, i);
    }
    for (std::size_t i = 0; i < count; ++i) {
      overflowed += overflows(Load<std::uint32_t>(in, i), kOverflowsFp16);
    }
  }
  return overflowed;
}

std::uint64_t CastBlock(DType from, const std::byte* in, DType to, std::byte* out,
                        std::size_t count) {
  std::array<std::byte, kBlockElements * sizeof(float)> floats;
  std::uint64_t overflowed = 0;
  if (from != DType::kFloat32) {
    std::byte* const made = to == DType::kFloat32 ? out : floats.data();
    const bool to_odd = to != DType::kFloat32;
    overflowed += ToFloat32(from, in, to_odd, made, count);
    in = made;
  }
  if (to != DType::kFloat32) overflowed += FromFloat32(to, in, out, count);
  return overflowed;
}

}  // namespace

std::uint16_t ToBf16Bits(float value) { return NarrowToBf16(AsBits(value)); }

std::uint16_t ToFp16Bits(float value) { return NarrowToFp16(AsBits(value)); }

float FromBf16Bits(std::uint16_t bits) { return AsFloat(std::uint32_t{bits} << 16); }

float FromFp16Bits(std::uint16_t bits) { return AsFloat(WidenFp16(bits)); }

std::uint64_t CastElements(DType from, ByteSpan in, DType to, MutableByteSpan out) {
  CKPT_CHECK(IsCastable(from) && IsCastable(to));
  const std::size_t from_bytes = ElementBytes(from);
  const std::size_t to_bytes = ElementBytes(to);
  const std::size_t count = in.size() / from_bytes;
  CKPT_CHECK(in.size() == count * from_bytes && out.size() == count * to_bytes);
  if (from == to) {
    if (count != 0) std::memcpy(out.data(), in.data(), in.size());
    return 0;
  }
  std::uint64_t overflowed = 0;
  WithWidestVectors([&] {
    for (std::size_t begin = 0; begin < count; begin += kBlockElements) {
      overflowed +=
          CastBlock(from, in.data() + begin * from_bytes, to, out.data() + begin * to_bytes,
                    std::min(kBlockElements, count - begin));
    }
  });
  return overflowed;
}

std::optional<DType> CommonDtype(DType a, DType b) {
  if (a == b) return a;
  if (!IsCastable(a) || !IsCastable(b)) return std::nullopt;
  if (ElementBytes(a) == ElementBytes(b)) return DType::kFloat32;  // the two of 16 bits
  return ElementBytes(a) > ElementBytes(b) ? a : b;
}

}  // namespace ckpt

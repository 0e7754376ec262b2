#include "core/tensor/cast.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <utility>

#include "core/base/check.h"
#include "core/base/widest_vectors.h"
#include "core/tensor/internal/cast_vectors.h"

namespace ckpt {
namespace {

// Elements pass through float32, one block at a time, in loops that the compiler vectorises:
// without branches, choosing among results that are all computed. Both stages of a block stay in
// the cache nearest to the core.
constexpr std::size_t kBlockElements = 2048;
// A kernel has one stage, but looks at a whole block again if it has an infinity.
constexpr std::size_t kKernelBlockElements = 32768;
constexpr std::size_t kLineBytes = 64;  // a line of the cache, and the widest vector

constexpr std::uint32_t kSign32 = 0x80000000U;
constexpr std::uint32_t kInfinity32 = 0x7F800000U;
constexpr std::uint32_t kQuiet32 = 0x00400000U;  // set in a NaN that arithmetic returns
constexpr std::uint32_t kInfinity16 = 0x7C00U;
// Powers of two as bits of a float32.
constexpr std::uint32_t kTwoTo16 = 0x47800000U;
constexpr std::uint32_t kTwoToMinus14 = 0x38800000U;  // the smallest normal float16
constexpr std::uint32_t kHalf = 0x3F000000U;
// The difference of the two exponent biases, at float32's exponent position, and the difference of
// the mantissa lengths.
constexpr std::uint32_t kRebias = 112U << 23;
constexpr int kFp16Shift = 13;

float AsFloat(std::uint32_t bits) { return std::bit_cast<float>(bits); }
std::uint32_t AsBits(float value) { return std::bit_cast<std::uint32_t>(value); }

std::uint32_t Quieted(std::uint32_t bits) {
  return bits | ((bits & ~kSign32) > kInfinity32 ? kQuiet32 : 0U);
}

// Exact, including NaN payloads.
std::uint32_t WidenFp16(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000U) << 16;
  const std::uint32_t magnitude = (half & 0x7FFFU) << kFp16Shift;
  const std::uint32_t normal = magnitude + kRebias;
  // Below the smallest normal exponent there is no implied leading one, so it is subtracted again.
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
  // A carry out of the mantissa moves into the exponent by itself; out of the largest exponent it
  // gives infinity.
  const std::uint32_t odd = (magnitude >> kFp16Shift) & 1U;
  const std::uint32_t normal = (magnitude - kRebias + 0x0FFFU + odd) >> kFp16Shift;
  // The last bit of 1/2 has the same value as that of a subnormal float16, so the addition rounds.
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

// The neighbour towards zero with its last bit set, unless `value` is a float32 exactly. That bit
// stands for everything that was cut off. If the result is then rounded to a type with fewer bits,
// `value` is in effect rounded only once.
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

// Converts elements of `from` to float32. With `to_odd`, a narrower target rounds the result later;
// otherwise float32 is the target.
void ToFloat32(DType from, const std::byte* in, bool to_odd, std::byte* out, std::size_t count) {
  if (from == DType::kBfloat16) {
    for (std::size_t i = 0; i < count; ++i) {
      Store(std::uint32_t{Load<std::uint16_t>(in, i)} << 16, out, i);
    }
  } else if (from == DType::kFloat16) {
    for (std::size_t i = internal::WidenFp16Vectors(in, out, count); i < count; ++i) {
      Store(Quieted(WidenFp16(Load<std::uint16_t>(in, i))), out, i);
    }
  } else if (to_odd) {
    for (std::size_t i = 0; i < count; ++i) {
      Store(RoundToOdd(Load<double>(in, i)), out, i);
    }
  } else {
    for (std::size_t i = 0; i < count; ++i) {
      Store(static_cast<float>(Load<double>(in, i)), out, i);
    }
  }
}

// Converts float32 to `to`.
void FromFloat32(DType to, const std::byte* in, std::byte* out, std::size_t count) {
  if (to == DType::kFloat64) {
    for (std::size_t i = 0; i < count; ++i) Store<double>(Load<float>(in, i), out, i);
  } else if (to == DType::kBfloat16) {
    for (std::size_t i = 0; i < count; ++i) {
      Store(NarrowToBf16(Load<std::uint32_t>(in, i)), out, i);
    }
  } else {
    for (std::size_t i = internal::NarrowToFp16Vectors(in, out, count); i < count; ++i) {
      Store(NarrowToFp16(Load<std::uint32_t>(in, i)), out, i);
    }
  }
}

// Compares magnitudes, the bits of `T` without the sign, with those of infinity.
template <typename T>
bool HasInfinity(T infinity, const std::byte* in, std::size_t count) {
  constexpr T kMagnitude = std::numeric_limits<T>::max() >> 1;
  T found = 0;
  for (std::size_t i = 0; i < count; ++i) {
    found |= static_cast<T>((Load<T>(in, i) & kMagnitude) == infinity ? 1 : 0);
  }
  return found != 0;
}

bool HasInfinity(DType dtype, const std::byte* in, std::size_t count) {
  switch (dtype) {
    case DType::kFloat16:
      return HasInfinity<std::uint16_t>(kInfinity16, in, count);
    case DType::kBfloat16:
      return HasInfinity<std::uint16_t>(kInfinity32 >> 16, in, count);
    case DType::kFloat32:
      return HasInfinity<std::uint32_t>(kInfinity32, in, count);
    default:
      return false;  // nothing overflows in float64
  }
}

double ValueOf(DType dtype, const std::byte* in, std::size_t i) {
  switch (dtype) {
    case DType::kFloat16:
      return AsFloat(WidenFp16(Load<std::uint16_t>(in, i)));
    case DType::kBfloat16:
      return FromBf16Bits(Load<std::uint16_t>(in, i));
    case DType::kFloat32:
      return Load<float>(in, i);
    default:
      return Load<double>(in, i);
  }
}

// How many finite values became infinite. For the few blocks with an infinity.
std::uint64_t CountOverflows(DType from, const std::byte* in, DType to, const std::byte* out,
                             std::size_t count) {
  std::uint64_t overflowed = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const bool overflows = std::isinf(ValueOf(to, out, i)) && std::isfinite(ValueOf(from, in, i));
    overflowed += overflows ? 1U : 0U;
  }
  return overflowed;
}

// How many elements come before the first one that begins a cache line. If elements cross lines,
// about that many.
std::size_t ElementsToLine(const std::byte* at, std::size_t element_bytes) {
  const std::size_t past = reinterpret_cast<std::uintptr_t>(at) % kLineBytes;
  return past == 0 ? 0 : (kLineBytes - past) / element_bytes;
}

std::uint64_t CastBlock(DType from, const std::byte* in, DType to, std::byte* out,
                        std::size_t count) {
  alignas(kLineBytes) std::array<std::byte, kBlockElements * sizeof(float)> floats;
  const std::byte* stage = in;
  if (from != DType::kFloat32) {
    std::byte* const made = to == DType::kFloat32 ? out : floats.data();
    const bool to_odd = to != DType::kFloat32;
    ToFloat32(from, in, to_odd, made, count);
    stage = made;
  }
  if (to != DType::kFloat32) FromFloat32(to, stage, out, count);
  const bool holds_all = ElementBytes(to) > ElementBytes(from);
  return holds_all || !HasInfinity(to, out, count) ? 0 : CountOverflows(from, in, to, out, count);
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
  const internal::CastKernel kernel = internal::FindCastKernel(from, to);
  // Each vector of the wider side lies within one cache line.
  const std::size_t to_line = from_bytes > to_bytes ? ElementsToLine(in.data(), from_bytes)
                                                    : ElementsToLine(out.data(), to_bytes);
  const std::size_t head = std::min(to_line, count);
  const std::size_t vectors = kernel == nullptr ? 0 : (count - head) / internal::kKernelElements;
  const std::size_t tail = head + vectors * internal::kKernelElements;
  std::uint64_t overflowed = 0;
  const auto cast_in_blocks = [&](std::size_t begin, std::size_t end, std::size_t most,
                                  const auto& cast) {
    for (std::size_t next = 0; begin < end; begin = next) {
      next = std::min(begin + most, end);
      overflowed +=
          cast(in.data() + begin * from_bytes, out.data() + begin * to_bytes, next - begin);
    }
  };
  cast_in_blocks(head, tail, kKernelBlockElements,
                 [&](const std::byte* some, std::byte* made, std::size_t size) {
                   return kernel(some, made, size) ? CountOverflows(from, some, to, made, size) : 0;
                 });
  WithWidestVectors([&] {
    for (const auto& [begin, end] : {std::pair(std::size_t{0}, head), std::pair(tail, count)}) {
      cast_in_blocks(begin, end, kBlockElements,
                     [&](const std::byte* some, std::byte* made, std::size_t size) {
                       return CastBlock(from, some, to, made, size);
                     });
    }
  });
  return overflowed;
}

std::optional<DType> CommonDtype(DType a, DType b) {
  if (a == b) return a;
  if (!IsCastable(a) || !IsCastable(b)) return std::nullopt;
  if (ElementBytes(a) == ElementBytes(b)) return DType::kFloat32;  // both have 16 bits
  return ElementBytes(a) > ElementBytes(b) ? a : b;
}

}  // namespace ckpt

#include "core/tensor/internal/cast_vectors.h"

#include <cstdint>

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace ckpt::internal {

#if defined(__x86_64__) && defined(__GNUC__)
namespace {

constexpr std::size_t kLanes = 8;

constexpr std::size_t SizeOf(DType dtype) {
  return dtype == DType::kFloat64 ? 8 : dtype == DType::kFloat32 ? 4 : 2;
}

[[gnu::target("avx2,f16c")]] std::size_t WidenFp16(const std::byte* in, std::byte* out,
                                                   std::size_t count) {
  std::size_t done = 0;
  for (; done + kLanes <= count; done += kLanes) {
    const __m128i halves =
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + done * sizeof(std::uint16_t)));
    _mm256_storeu_ps(reinterpret_cast<float*>(out + done * sizeof(float)), _mm256_cvtph_ps(halves));
  }
  return done;
}

[[gnu::target("avx2,f16c")]] std::size_t NarrowToFp16(const std::byte* in, std::byte* out,
                                                      std::size_t count) {
  std::size_t done = 0;
  for (; done + kLanes <= count; done += kLanes) {
    const __m256 floats =
        _mm256_loadu_ps(reinterpret_cast<const float*>(in + done * sizeof(float)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + done * sizeof(std::uint16_t)),
                     _mm256_cvtps_ph(floats, _MM_FROUND_TO_NEAREST_INT));
  }
  return done;
}

#define CKPT_AVX512 [[gnu::target("avx512f,avx512vl,avx512bw,avx512dq,f16c")]]

CKPT_AVX512 inline __m512i Bits(__m512 floats) { return _mm512_castps_si512(floats); }
CKPT_AVX512 inline __m512 Join(__m256 low, __m256 high) {
  return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
}

// float32 values of eight float64, rounded to odd (cast.cc says why).
CKPT_AVX512 inline __m256 RoundToOdd(__m512d value) {
  const __m256 cut = _mm512_cvt_roundpd_ps(value, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
  const __mmask8 is_inexact = _mm512_cmp_pd_mask(_mm512_cvtps_pd(cut), value, _CMP_NEQ_OQ);
  const __m256i bits = _mm256_castps_si256(cut);
  return _mm256_castsi256_ps(_mm256_mask_or_epi32(bits, is_inexact, bits, _mm256_set1_epi32(1)));
}

// float32 values of 16 elements, rounded to nearest.
template <DType kFrom>
CKPT_AVX512 inline __m512 LoadAsFloats(const std::byte* in) {
  if constexpr (kFrom == DType::kBfloat16) {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  } else if constexpr (kFrom == DType::kFloat16) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(in)));
  } else if constexpr (kFrom == DType::kFloat32) {
    return _mm512_loadu_ps(in);
  } else {
    return Join(_mm512_cvtpd_ps(_mm512_loadu_pd(in)),
                _mm512_cvtpd_ps(_mm512_loadu_pd(in + sizeof(__m512d))));
  }
}

// The same of eight elements. REQUIRES: not float64.
template <DType kFrom>
CKPT_AVX512 inline __m256 LoadEightAsFloats(const std::byte* in) {
  if constexpr (kFrom == DType::kFloat32)
    return _mm256_loadu_ps(reinterpret_cast<const float*>(in));
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in));
  if constexpr (kFrom == DType::kFloat16) return _mm256_cvtph_ps(halves);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

// The upper halves are bfloat16 values.
CKPT_AVX512 inline __m512i RoundToBf16(__m512 floats) {
  const __m512i bits = Bits(floats);
  const __m512i odd = _mm512_and_epi32(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
  const __mmask16 is_nan = _mm512_cmp_ps_mask(floats, floats, _CMP_UNORD_Q);
  return _mm512_mask_or_epi32(rounded, is_nan, bits, _mm512_set1_epi32(0x00400000));
}

// The 32 elements of a target of 16 bits.
template <DType kTo>
CKPT_AVX512 inline __m512i Narrow(__m512 low, __m512 high) {
  if constexpr (kTo == DType::kBfloat16) {
    alignas(64) constexpr std::uint16_t kUpperHalves[32] = {
        1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
        33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
    return _mm512_permutex2var_epi16(RoundToBf16(low), _mm512_load_si512(kUpperHalves),
                                     RoundToBf16(high));
  } else {
    constexpr int kRounding = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtps_ph(low, kRounding)),
                              _mm512_cvtps_ph(high, kRounding), 1);
  }
}

// Zero in a lane only if results that were made of the float32 values nearest to float64 values may
// differ from these rounded once: a float32 must lie halfway between two values of the target.
template <DType kTo>
CKPT_AVX512 inline __m512i DistanceToTie(__m512 low, __m512 high) {
  if constexpr (kTo == DType::kBfloat16) {
    constexpr int kXorAnd = 0x28;  // (a ^ b) & c
    const __m512i half = _mm512_set1_epi32(1 << 15);
    const __m512i dropped = _mm512_set1_epi32((1 << 16) - 1);
    return _mm512_min_epu32(_mm512_ternarylogic_epi32(Bits(low), half, dropped, kXorAnd),
                            _mm512_ternarylogic_epi32(Bits(high), half, dropped, kXorAnd));
  } else {
    // 13 bits are dropped, and more for a subnormal float16: the lowest 12 are 0 in each tie.
    const __m512i below = _mm512_set1_epi32((1 << 12) - 1);
    return _mm512_min_epu32(_mm512_and_epi32(Bits(low), below),
                            _mm512_and_epi32(Bits(high), below));
  }
}

CKPT_AVX512 inline __m512 LoadRoundedToOdd(const std::byte* in) {
  return Join(RoundToOdd(_mm512_loadu_pd(in)), RoundToOdd(_mm512_loadu_pd(in + sizeof(__m512d))));
}

// `largest` has the largest magnitude, as its bits, that was stored at each position of a vector.
template <DType kTo>
CKPT_AVX512 inline void Note(__m512i stored, __m512i& largest) {
  if constexpr (kTo == DType::kFloat32) {
    const __m512i magnitude = _mm512_and_epi32(stored, _mm512_set1_epi32(INT32_MAX));
    largest = _mm512_max_epu32(largest, magnitude);
  } else {
    const __m512i magnitude = _mm512_and_epi32(stored, _mm512_set1_epi16(INT16_MAX));
    largest = _mm512_max_epu16(largest, magnitude);
  }
}

// Whether an infinity or a NaN was stored.
template <DType kTo>
CKPT_AVX512 inline bool IsSpecial(__m512i largest) {
  if constexpr (kTo == DType::kFloat32) {
    return _mm512_cmpge_epu32_mask(largest, _mm512_set1_epi32(0x7F800000)) != 0;
  } else {
    constexpr short kInfinity = kTo == DType::kBfloat16 ? 0x7F80 : 0x7C00;
    return _mm512_cmpge_epu16_mask(largest, _mm512_set1_epi16(kInfinity)) != 0;
  }
}

// Converts 32 elements to float32 or to a target of 16 bits.
template <DType kFrom, DType kTo>
CKPT_AVX512 inline void CastHalf(const std::byte* in, std::byte* out, __m512i& largest) {
  const __m512 low = LoadAsFloats<kFrom>(in);
  const __m512 high = LoadAsFloats<kFrom>(in + 16 * SizeOf(kFrom));
  if constexpr (kTo == DType::kFloat32) {
    _mm512_storeu_ps(out, low);
    _mm512_storeu_ps(out + sizeof low, high);
    Note<kTo>(Bits(low), largest);
    Note<kTo>(Bits(high), largest);
  } else {
    const __m512i narrow = Narrow<kTo>(low, high);
    _mm512_storeu_si512(out, narrow);
    Note<kTo>(narrow, largest);
  }
}

// Converts kKernelElements elements.
template <DType kFrom, DType kTo>
CKPT_AVX512 inline void CastOnce(const std::byte* in, std::byte* out, __m512i& largest) {
  const std::byte* const in_2 = in + 32 * SizeOf(kFrom);
  std::byte* const out_2 = out + 32 * SizeOf(kTo);
  if constexpr (kTo == DType::kFloat64) {
    for (std::size_t i = 0; i < kKernelElements; i += 8) {
      _mm512_storeu_pd(out + i * sizeof(double),
                       _mm512_cvtps_pd(LoadEightAsFloats<kFrom>(in + i * SizeOf(kFrom))));
    }
  } else if constexpr (kFrom == DType::kFloat64 && kTo == DType::kFloat32) {
    // Eight at a time: joining two halves takes longer than a second store.
    __m256i most = _mm512_castsi512_si256(largest);
    for (std::size_t i = 0; i < kKernelElements; i += 8) {
      const __m256 floats = _mm512_cvtpd_ps(_mm512_loadu_pd(in + i * sizeof(double)));
      _mm256_storeu_ps(reinterpret_cast<float*>(out + i * sizeof(float)), floats);
      const __m256i bits = _mm256_castps_si256(floats);
      most = _mm256_max_epu32(most, _mm256_and_si256(bits, _mm256_set1_epi32(INT32_MAX)));
    }
    largest = _mm512_zextsi256_si512(most);
  } else if constexpr (kFrom != DType::kFloat64) {
    CastHalf<kFrom, kTo>(in, out, largest);
    CastHalf<kFrom, kTo>(in_2, out_2, largest);
  } else {
    constexpr std::size_t kQuarter = 16 * sizeof(double);
    const __m512 a = LoadAsFloats<kFrom>(in);
    const __m512 b = LoadAsFloats<kFrom>(in + kQuarter);
    const __m512 c = LoadAsFloats<kFrom>(in_2);
    const __m512 d = LoadAsFloats<kFrom>(in_2 + kQuarter);
    __m512i narrow = Narrow<kTo>(a, b);
    __m512i narrow_2 = Narrow<kTo>(c, d);
    const __m512i to_tie = _mm512_min_epu32(DistanceToTie<kTo>(a, b), DistanceToTie<kTo>(c, d));
    if (_mm512_testn_epi32_mask(to_tie, to_tie) != 0) {
      narrow = Narrow<kTo>(LoadRoundedToOdd(in), LoadRoundedToOdd(in + kQuarter));
      narrow_2 = Narrow<kTo>(LoadRoundedToOdd(in_2), LoadRoundedToOdd(in_2 + kQuarter));
    }
    _mm512_storeu_si512(out, narrow);
    _mm512_storeu_si512(out_2, narrow_2);
    Note<kTo>(narrow, largest);
    Note<kTo>(narrow_2, largest);
  }
}

template <DType kFrom, DType kTo>
CKPT_AVX512 bool CastWith512(const std::byte* in, std::byte* out, std::size_t count) {
  __m512i largest = _mm512_setzero_si512();
  for (std::size_t i = 0; i < count; i += kKernelElements) {
    CastOnce<kFrom, kTo>(in + i * SizeOf(kFrom), out + i * SizeOf(kTo), largest);
  }
  // A wider target holds every value.
  return SizeOf(kTo) <= SizeOf(kFrom) && IsSpecial<kTo>(largest);
}

template <DType kFrom>
CastKernel KernelTo(DType to) {
  switch (to) {
    case DType::kFloat16:
      return CastWith512<kFrom, DType::kFloat16>;
    case DType::kBfloat16:
      return CastWith512<kFrom, DType::kBfloat16>;
    case DType::kFloat32:
      return CastWith512<kFrom, DType::kFloat32>;
    default:
      return CastWith512<kFrom, DType::kFloat64>;
  }
}

// clang 14 does not know "f16c" in __builtin_cpu_supports. That the system keeps the wide registers
// is what "avx2" says.
bool HasF16c() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  const bool is_known = __get_cpuid(1, &a, &b, &c, &d) != 0;
  return is_known && (c & bit_F16C) != 0 && __builtin_cpu_supports("avx2");
}

}  // namespace

std::size_t WidenFp16Vectors(const std::byte* in, std::byte* out, std::size_t count) {
  static const bool has_f16c = HasF16c();
  return has_f16c ? WidenFp16(in, out, count) : 0;
}

std::size_t NarrowToFp16Vectors(const std::byte* in, std::byte* out, std::size_t count) {
  static const bool has_f16c = HasF16c();
  return has_f16c ? NarrowToFp16(in, out, count) : 0;
}

CastKernel FindCastKernel(DType from, DType to) {
  static const bool has_avx512 =
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") && HasF16c();
  if (!has_avx512) return nullptr;
  switch (from) {
    case DType::kFloat16:
      return KernelTo<DType::kFloat16>(to);
    case DType::kBfloat16:
      return KernelTo<DType::kBfloat16>(to);
    case DType::kFloat32:
      return KernelTo<DType::kFloat32>(to);
    default:
      return KernelTo<DType::kFloat64>(to);
  }
}
#else
std::size_t WidenFp16Vectors(const std::byte*, std::byte*, std::size_t) { return 0; }
std::size_t NarrowToFp16Vectors(const std::byte*, std::byte*, std::size_t) { return 0; }
CastKernel FindCastKernel(DType, DType) { return nullptr; }
#endif

}  // namespace ckpt::internal

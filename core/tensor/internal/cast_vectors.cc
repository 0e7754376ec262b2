#include "core/tensor/internal/cast_vectors.h"

#include <cstdint>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

namespace ckpt::internal {

#if defined(__x86_64__) && defined(__GNUC__)
namespace {

constexpr std::size_t kLanes = 8;

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

[[gnu::target("avx512f,avx512vl")]] std::size_t RoundToOdd(const std::byte* in, std::byte* out,
                                                           std::size_t count) {
  const __m256i one = _mm256_set1_epi32(1);
  std::size_t done = 0;
  for (; done + kLanes <= count; done += kLanes) {
    const __m512d value =
        _mm512_loadu_pd(reinterpret_cast<const double*>(in + done * sizeof(double)));
    const __m256 cut = _mm512_cvt_roundpd_ps(value, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
    const __mmask8 is_inexact = _mm512_cmp_pd_mask(_mm512_cvtps_pd(cut), value, _CMP_NEQ_OQ);
    const __m256i bits = _mm256_castps_si256(cut);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + done * sizeof(float)),
                        _mm256_mask_or_epi32(bits, is_inexact, bits, one));
  }
  return done;
}

}  // namespace

std::size_t WidenFp16Vectors(const std::byte* in, std::byte* out, std::size_t count) {
  static const bool has_f16c = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  return has_f16c ? WidenFp16(in, out, count) : 0;
}

std::size_t NarrowToFp16Vectors(const std::byte* in, std::byte* out, std::size_t count) {
  static const bool has_f16c = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  return has_f16c ? NarrowToFp16(in, out, count) : 0;
}

std::size_t RoundToOddVectors(const std::byte* in, std::byte* out, std::size_t count) {
  static const bool has_avx512 =
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl");
  return has_avx512 ? RoundToOdd(in, out, count) : 0;
}
#else
std::size_t WidenFp16Vectors(const std::byte*, std::byte*, std::size_t) { return 0; }
std::size_t NarrowToFp16Vectors(const std::byte*, std::byte*, std::size_t) { return 0; }
std::size_t RoundToOddVectors(const std::byte*, std::byte*, std::size_t) { return 0; }
#endif

}  // namespace ckpt::internal

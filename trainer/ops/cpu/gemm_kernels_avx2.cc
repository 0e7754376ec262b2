#include "trainer/ops/cpu/internal/gemm_kernels.h"

// Compiled for AVX2 and FMA (CMakeLists.txt). Without them it returns no kernels.
#if defined(__AVX2__) && defined(__FMA__)

#include <immintrin.h>

#include "trainer/ops/cpu/gemm_kernels_body.h"

namespace ckpt::trainer {
namespace {

struct Floats256 {
  using Real = float;
  using Reg = __m256;
  static constexpr int kLanes = 8;
  static Reg Load(const float* from) { return _mm256_loadu_ps(from); }
  static void Store(Reg x, float* to) { _mm256_storeu_ps(to, x); }
  static Reg Broadcast(float x) { return _mm256_set1_ps(x); }
  static Reg MultiplyAdd(Reg a, Reg b, Reg c) { return _mm256_fmadd_ps(a, b, c); }
  // Unpacking works within halves of 128 bits, which are combined afterwards.
  static Reg InterleaveLow(Reg a, Reg b) {
    return _mm256_permute2f128_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b), 0x20);
  }
  static Reg InterleaveHigh(Reg a, Reg b) {
    return _mm256_permute2f128_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b), 0x31);
  }
};

struct Doubles256 {
  using Real = double;
  using Reg = __m256d;
  static constexpr int kLanes = 4;
  static Reg Load(const double* from) { return _mm256_loadu_pd(from); }
  static void Store(Reg x, double* to) { _mm256_storeu_pd(to, x); }
  static Reg Broadcast(double x) { return _mm256_set1_pd(x); }
  static Reg MultiplyAdd(Reg a, Reg b, Reg c) { return _mm256_fmadd_pd(a, b, c); }
  static Reg InterleaveLow(Reg a, Reg b) {
    return _mm256_permute2f128_pd(_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b), 0x20);
  }
  static Reg InterleaveHigh(Reg a, Reg b) {
    return _mm256_permute2f128_pd(_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b), 0x31);
  }
};

// 12 of the 16 registers hold sums.
constexpr GemmKernels kKernels = MakeGemmKernels<Floats256, 6, Doubles256, 6>("avx2");

}  // namespace

const GemmKernels* Avx2GemmKernels() { return &kKernels; }

}  // namespace ckpt::trainer

#else

namespace ckpt::trainer {

const GemmKernels* Avx2GemmKernels() { return nullptr; }

}  // namespace ckpt::trainer

#endif

#include "trainer/ops/cpu/internal/gemm_kernels.h"

// Compiled for AVX-512 (CMakeLists.txt). Without it, it returns no kernels.
#if defined(__AVX512F__)

#include <immintrin.h>

#include "trainer/ops/cpu/gemm_kernels_body.h"

namespace ckpt::trainer {
namespace {

struct Floats512 {
  using Real = float;
  using Reg = __m512;
  static constexpr int kLanes = 16;
  static Reg Load(const float* from) { return _mm512_loadu_ps(from); }
  static void Store(Reg x, float* to) { _mm512_storeu_ps(to, x); }
  static Reg Broadcast(float x) { return _mm512_set1_ps(x); }
  static Reg MultiplyAdd(Reg a, Reg b, Reg c) { return _mm512_fmadd_ps(a, b, c); }
  static Reg InterleaveLow(Reg a, Reg b) {
    const __m512i order = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    return _mm512_permutex2var_ps(a, order, b);
  }
  static Reg InterleaveHigh(Reg a, Reg b) {
    const __m512i order =
        _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    return _mm512_permutex2var_ps(a, order, b);
  }
};

struct Doubles512 {
  using Real = double;
  using Reg = __m512d;
  static constexpr int kLanes = 8;
  static Reg Load(const double* from) { return _mm512_loadu_pd(from); }
  static void Store(Reg x, double* to) { _mm512_storeu_pd(to, x); }
  static Reg Broadcast(double x) { return _mm512_set1_pd(x); }
  static Reg MultiplyAdd(Reg a, Reg b, Reg c) { return _mm512_fmadd_pd(a, b, c); }
  static Reg InterleaveLow(Reg a, Reg b) {
    return _mm512_permutex2var_pd(a, _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11), b);
  }
  static Reg InterleaveHigh(Reg a, Reg b) {
    return _mm512_permutex2var_pd(a, _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15), b);
  }
};

// 28 of the 32 registers hold sums.
constexpr GemmKernels kKernels = MakeGemmKernels<Floats512, 14, Doubles512, 14>("avx512");

}  // namespace

const GemmKernels* Avx512GemmKernels() { return &kKernels; }

}  // namespace ckpt::trainer

#else

namespace ckpt::trainer {

const GemmKernels* Avx512GemmKernels() { return nullptr; }

}  // namespace ckpt::trainer

#endif

#include "trainer/ops/cpu/gemm_kernels.h"

// Compiled for AVX-512 (CMakeLists.txt); elsewhere it has nothing to offer.
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
};

struct Doubles512 {
  using Real = double;
  using Reg = __m512d;
  static constexpr int kLanes = 8;
  static Reg Load(const double* from) { return _mm512_loadu_pd(from); }
  static void Store(Reg x, double* to) { _mm512_storeu_pd(to, x); }
  static Reg Broadcast(double x) { return _mm512_set1_pd(x); }
  static Reg MultiplyAdd(Reg a, Reg b, Reg c) { return _mm512_fmadd_pd(a, b, c); }
};

// 28 of 32 registers hold sums.
constexpr GemmKernels kKernels = MakeGemmKernels<Floats512, 14, Doubles512, 14>("avx512");

}  // namespace

const GemmKernels* Avx512GemmKernels() { return &kKernels; }

}  // namespace ckpt::trainer

#else

namespace ckpt::trainer {

const GemmKernels* Avx512GemmKernels() { return nullptr; }

}  // namespace ckpt::trainer

#endif

#include <cmath>

#include "trainer/ops/cpu/gemm_kernels_body.h"
#include "trainer/ops/cpu/internal/gemm_kernels.h"

namespace ckpt::trainer {
namespace {

// One number per register. Without fused multiply-add in the processor, std::fma emulates it:
// slowly, with the same bits.
template <typename T>
struct Plain {
  using Real = T;
  using Reg = T;
  static constexpr int kLanes = 1;
  static Reg Load(const T* from) { return *from; }
  static void Store(Reg x, T* to) { *to = x; }
  static Reg Broadcast(T x) { return x; }
  static Reg MultiplyAdd(Reg a, Reg b, Reg c) { return std::fma(a, b, c); }
  static Reg InterleaveLow(Reg a, Reg) { return a; }
  static Reg InterleaveHigh(Reg, Reg b) { return b; }
};

constexpr GemmKernels kKernels = MakeGemmKernels<Plain<float>, 4, Plain<double>, 4>("plain");

}  // namespace

const GemmKernels* PlainGemmKernels() { return &kKernels; }

const GemmKernels& BestGemmKernels() {
  static const GemmKernels* const best = [] {
#if defined(__x86_64__)
    if (Avx512GemmKernels() != nullptr && __builtin_cpu_supports("avx512f"))
      return Avx512GemmKernels();
    if (Avx2GemmKernels() != nullptr && __builtin_cpu_supports("avx2") &&
        __builtin_cpu_supports("fma")) {
      return Avx2GemmKernels();
    }
#endif
    return PlainGemmKernels();
  }();
  return *best;
}

}  // namespace ckpt::trainer

#include "trainer/ops/cpu/internal/blas.h"

#include <cblas.h>
#include <cstdlib>
#include <cstring>

#include "core/base/check.h"

// Functions by which OpenBLAS chooses its kernels again. Weak symbols, because other builds of it
// may lack them.
extern "C" {
__attribute__((weak)) void gotoblas_dynamic_init();
__attribute__((weak)) void gotoblas_dynamic_quit();
}

namespace ckpt::trainer {
namespace {

// OpenBLAS takes a processor newer than itself for the oldest one it knows, and then runs five
// times slower than necessary (0.3.21 on Emerald Rapids). If it did so, this tells it what the
// processor supports.
void ChooseKernels() {
#if defined(__x86_64__)
  if (gotoblas_dynamic_init == nullptr || gotoblas_dynamic_quit == nullptr) return;
  if (std::strcmp(openblas_get_corename(), "Prescott") != 0) return;
  const char* core = nullptr;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq")) {
    core = "SkylakeX";
  } else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    core = "Haswell";
  }
  if (core == nullptr) return;
  // Does not overwrite a name that the user has set. The library reads the name only from the
  // environment.
  if (setenv("OPENBLAS_CORETYPE", core, /*overwrite=*/0) != 0) return;
  gotoblas_dynamic_quit();
  gotoblas_dynamic_init();
#endif
}

// Runs before the first product. Our threads divide the rows of a product among them, and several
// ranks compute products at the same time. The library's own threads would compete with both.
void PrepareOnce() {
  static const bool prepared = [] {
    ChooseKernels();
    openblas_set_num_threads(1);
    return true;
  }();
  (void)prepared;
}

struct BlasOperand {
  CBLAS_TRANSPOSE transpose = CblasNoTrans;
  blasint stride = 1;
};

template <typename T>
BlasOperand Describe(const Matrix<T>& matrix, std::int64_t rows, std::int64_t columns) {
  // A matrix of one row or column may have any other stride, but cblas requires one that is at
  // least a row's length.
  if (matrix.column_stride == 1) {
    return {CblasNoTrans, static_cast<blasint>(rows == 1 ? columns : matrix.row_stride)};
  }
  CKPT_CHECK(matrix.row_stride == 1);
  return {CblasTrans, static_cast<blasint>(columns == 1 ? rows : matrix.column_stride)};
}

template <typename T, typename Gemm>
void Call(Gemm gemm, const ProductSize& size, const Matrix<T>& a, const Matrix<T>& b,
          bool accumulate, T* c, std::int64_t c_stride) {
  PrepareOnce();
  const BlasOperand left = Describe(a, size.m, size.k);
  const BlasOperand right = Describe(b, size.k, size.n);
  gemm(CblasRowMajor, left.transpose, right.transpose, static_cast<blasint>(size.m),
       static_cast<blasint>(size.n), static_cast<blasint>(size.k), T{1}, a.data, left.stride,
       b.data, right.stride, accumulate ? T{1} : T{0}, c, static_cast<blasint>(c_stride));
}

}  // namespace

void BlasGemm(const ProductSize& size, const Matrix<float>& a, const Matrix<float>& b,
              bool accumulate, float* c, std::int64_t c_stride) {
  Call(cblas_sgemm, size, a, b, accumulate, c, c_stride);
}

void BlasGemm(const ProductSize& size, const Matrix<double>& a, const Matrix<double>& b,
              bool accumulate, double* c, std::int64_t c_stride) {
  Call(cblas_dgemm, size, a, b, accumulate, c, c_stride);
}

std::string BlasCoreName() {
  PrepareOnce();
  return openblas_get_corename();
}

}  // namespace ckpt::trainer

#include "trainer/ops/cpu/internal/dnnl_matmul.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <oneapi/dnnl/dnnl.hpp>
#include <type_traits>

#include "core/base/check.h"
#include "core/base/mutex.h"
#include "trainer/ops/cpu/internal/dnnl_thread.h"

namespace ckpt::trainer {
namespace {

using dnnl::memory;

// What the library compiles code for. Sizes and strides are known when a product runs: experts have
// other numbers of rows in every step, and code for each of them would take a millisecond.
struct Form {
  bool a_is_transposed = false;
  bool b_is_transposed = false;
  bool accumulate = false;
  memory::data_type result = memory::data_type::f32;

  static constexpr std::size_t kCount = 16;
  [[nodiscard]] std::size_t index() const {
    return (a_is_transposed ? 8U : 0U) + (b_is_transposed ? 4U : 0U) + (accumulate ? 2U : 0U) +
           (result == memory::data_type::f32 ? 1U : 0U);
  }
};

memory::desc AnyMatrix(memory::data_type type, bool is_transposed) {
  constexpr auto kAny = DNNL_RUNTIME_DIM_VAL;
  return {{kAny, kAny}, type, is_transposed ? memory::dims{1, kAny} : memory::dims{kAny, 1}};
}

memory::desc Describe(const Matrix<Bf16>& matrix, std::int64_t rows, std::int64_t columns) {
  // A matrix of one row or column may have any other stride, but the library requires one that is
  // at least a row's length.
  if (matrix.column_stride == 1) {
    return {{rows, columns},
            memory::data_type::bf16,
            memory::dims{rows == 1 ? columns : matrix.row_stride, 1}};
  }
  CKPT_CHECK(matrix.row_stride == 1);
  return {{rows, columns},
          memory::data_type::bf16,
          memory::dims{1, columns == 1 ? rows : matrix.column_stride}};
}

// A thread's products: the library's objects belong to the thread that makes them.
class ThreadProducts {
 public:
  void Run(const Form& form, const memory::desc& a_desc, const Bf16* a, const memory::desc& b_desc,
           const Bf16* b, const memory::desc& c_desc, void* c) {
    const memory left(a_desc, engine_, const_cast<Bf16*>(a));  // the library only reads it
    const memory right(b_desc, engine_, const_cast<Bf16*>(b));
    const memory result(c_desc, engine_, c);
    Product(form).execute(
        stream_, {{DNNL_ARG_SRC, left}, {DNNL_ARG_WEIGHTS, right}, {DNNL_ARG_DST, result}});
  }

 private:
  dnnl::matmul& Product(const Form& form) {
    dnnl::matmul& product = products_[form.index()];
    if (product.get(/*allow_empty=*/true) != nullptr) return product;
    // The library caches what it makes for all threads. It has a lock of its own, which
    // ThreadSanitizer does not see.
    static Mutex making;
    const MutexLock lock(making);
    const memory::desc a = AnyMatrix(memory::data_type::bf16, form.a_is_transposed);
    const memory::desc b = AnyMatrix(memory::data_type::bf16, form.b_is_transposed);
    const memory::desc c = AnyMatrix(form.result, false);
    dnnl::primitive_attr attributes;
    if (form.accumulate) {
      dnnl::post_ops sum;
      sum.append_sum(1.0F);
      attributes.set_post_ops(sum);
    }
#if DNNL_VERSION_MAJOR >= 3
    product = dnnl::matmul(dnnl::matmul::primitive_desc(engine_, a, b, c, attributes));
#else
    product = dnnl::matmul(
        dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, c), attributes, engine_));
#endif
    return product;
  }

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::array<dnnl::matmul, Form::kCount> products_;
};

template <typename C>
void RunProduct(const ProductSize& size, const Matrix<Bf16>& a, const Matrix<Bf16>& b,
                bool accumulate, C* c, std::int64_t c_stride) {
  const auto [m, n, k] = size;
  if (m == 0 || n == 0) return;
  if (k == 0) {  // a sum of nothing
    for (std::int64_t i = 0; i < m && !accumulate; ++i) std::fill_n(c + i * c_stride, n, C{});
    return;
  }
  UseThisThreadAlone();
  constexpr memory::data_type kResult =
      std::is_same_v<C, float> ? memory::data_type::f32 : memory::data_type::bf16;
  thread_local ThreadProducts products;
  try {
    products.Run({.a_is_transposed = a.column_stride != 1,
                  .b_is_transposed = b.column_stride != 1,
                  .accumulate = accumulate,
                  .result = kResult},
                 Describe(a, m, k), a.data, Describe(b, k, n), b.data,
                 {{m, n}, kResult, memory::dims{m == 1 ? n : c_stride, 1}}, c);
  } catch (const dnnl::error&) {
    CKPT_CHECK(false && "oneDNN refused a product");
  }
}

}  // namespace

bool MultipliesBfloat16() {
  static const bool has_instructions = [] {
    constexpr unsigned kNeeded = dnnl_cpu_isa_avx512_core_bf16;  // one bit for each extension
    return (static_cast<unsigned>(dnnl_get_effective_cpu_isa()) & kNeeded) == kNeeded;
  }();
  return has_instructions;
}

void DnnlMatmul(const ProductSize& size, const Matrix<Bf16>& a, const Matrix<Bf16>& b,
                bool accumulate, float* c, std::int64_t c_stride) {
  RunProduct(size, a, b, accumulate, c, c_stride);
}

void DnnlMatmul(const ProductSize& size, const Matrix<Bf16>& a, const Matrix<Bf16>& b,
                bool accumulate, Bf16* c, std::int64_t c_stride) {
  RunProduct(size, a, b, accumulate, c, c_stride);
}

}  // namespace ckpt::trainer

// Dense products by cuBLASLt.
//
// cuBLASLt's matrices are in column order. A row-major matrix is the transpose of a column-major
// one, so dᵀ = op(b)ᵀ · op(a)ᵀ is asked for: the operands change places and nothing is transposed
// in memory.
#include <string>
#include <utility>

#include <cublasLt.h>

#include "core/base/check.h"
#include "trainer/ops/cuda/cuda_ops_impl.h"
#include "trainer/ops/cuda/products.h"

namespace ckpt::trainer {
namespace cuda {
namespace {

Status BlasStatus(cublasStatus_t code, const char* call) {
  if (code == CUBLAS_STATUS_SUCCESS) return OkStatus();
  return Error(ErrorKind::kSystem, "a matrix product failed on the GPU")
      .Expected(std::string(call) + " to succeed")
      .Actual(cublasLtGetStatusString(code));
}

#define CKPT_BLAS_OR_RETURN(call) CKPT_RETURN_IF_ERROR(BlasStatus((call), #call))

cudaDataType TypeOf(DType dtype) {
  CKPT_CHECK(dtype == DType::kFloat32 || dtype == DType::kBfloat16);
  return dtype == DType::kFloat32 ? CUDA_R_32F : CUDA_R_16BF;
}

template <typename T, cublasStatus_t (*kDestroy)(T)>
struct BlasDeleter {
  using pointer = T;
  void operator()(T object) const { (void)kDestroy(object); }
};
using Operation =
    std::unique_ptr<void, BlasDeleter<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>>;
using Layout =
    std::unique_ptr<void, BlasDeleter<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>>;
using Preference =
    std::unique_ptr<void, BlasDeleter<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>>;

// The layout of a row-major matrix [rows, columns].
Result<Layout> MakeLayout(DType dtype, std::int64_t rows, std::int64_t columns) {
  cublasLtMatrixLayout_t layout = nullptr;
  CKPT_BLAS_OR_RETURN(cublasLtMatrixLayoutCreate(&layout, TypeOf(dtype),
                                                 static_cast<std::uint64_t>(columns),
                                                 static_cast<std::uint64_t>(rows), columns));
  return Layout(layout);
}

}  // namespace

struct Products::Plan {
  Operation operation;
  Layout a;
  Layout b;
  Layout d;
  cublasLtMatmulAlgo_t algorithm{};
};

Result<std::unique_ptr<Products>> Products::Create() {
  cublasLtHandle_t handle = nullptr;
  CKPT_BLAS_OR_RETURN(cublasLtCreate(&handle));
  return std::unique_ptr<Products>(new Products(handle));
}

Products::Products(void* handle) : handle_(handle) {}

Products::~Products() { (void)cublasLtDestroy(static_cast<cublasLtHandle_t>(handle_)); }

Result<Products::Plan*> Products::PlanOf(const Shape& shape) {
  const auto found = plans_.find(shape);
  if (found != plans_.end()) return found->second.get();

  auto plan = std::make_unique<Plan>();
  cublasLtMatmulDesc_t operation = nullptr;
  CKPT_BLAS_OR_RETURN(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  plan->operation.reset(operation);
  const cublasOperation_t first = shape.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t second = shape.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  CKPT_BLAS_OR_RETURN(
      cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first));
  CKPT_BLAS_OR_RETURN(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSB,
                                                     &second, sizeof second));
  CKPT_ASSIGN_OR_RETURN(plan->a, shape.transpose_a ? MakeLayout(shape.operands, shape.k, shape.m)
                                                   : MakeLayout(shape.operands, shape.m, shape.k));
  CKPT_ASSIGN_OR_RETURN(plan->b, shape.transpose_b ? MakeLayout(shape.operands, shape.n, shape.k)
                                                   : MakeLayout(shape.operands, shape.k, shape.n));
  CKPT_ASSIGN_OR_RETURN(plan->d, MakeLayout(shape.result, shape.m, shape.n));

  cublasLtMatmulPreference_t preference = nullptr;
  CKPT_BLAS_OR_RETURN(cublasLtMatmulPreferenceCreate(&preference));
  const Preference owned(preference);
  CKPT_BLAS_OR_RETURN(
      cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                           &kWorkspaceBytes, sizeof kWorkspaceBytes));
  cublasLtMatmulHeuristicResult_t best{};
  int num_found = 0;
  CKPT_BLAS_OR_RETURN(cublasLtMatmulAlgoGetHeuristic(
      static_cast<cublasLtHandle_t>(handle_), operation, plan->b.get(), plan->a.get(),
      plan->d.get(), plan->d.get(), preference, 1, &best, &num_found));
  if (num_found == 0) return BlasStatus(CUBLAS_STATUS_NOT_SUPPORTED, "an algorithm for the shape");
  plan->algorithm = best.algo;
  return plans_.emplace(shape, std::move(plan)).first->second.get();
}

void Products::Multiply(CudaQueue& queue, const GemmForm& form, const Tensor& a, const Tensor& b,
                        const Tensor& d, std::byte* workspace) {
  CKPT_CHECK(a.ndim == 2 && b.ndim == 2 && d.ndim == 2 && a.dtype == b.dtype);
  const Shape shape = {.m = d.dim(0),
                       .n = d.dim(1),
                       .k = form.transpose_a ? a.dim(0) : a.dim(1),
                       .transpose_a = form.transpose_a,
                       .transpose_b = form.transpose_b,
                       .accumulate = form.accumulate,
                       .operands = a.dtype,
                       .result = d.dtype};
  CKPT_CHECK((form.transpose_a ? a.dim(1) : a.dim(0)) == shape.m);
  CKPT_CHECK((form.transpose_b ? b.dim(0) : b.dim(1)) == shape.n);
  CKPT_CHECK((form.transpose_b ? b.dim(1) : b.dim(0)) == shape.k);
  if (shape.m == 0 || shape.n == 0) return;
  if (shape.k == 0) {  // a sum of nothing
    if (!form.accumulate) (void)cudaMemsetAsync(d.data, 0, d.size_bytes(), queue.stream());
    return;
  }
  const Result<Plan*> plan = PlanOf(shape);
  if (!plan.ok()) return queue.Fail(plan.status());
  if (workspace == nullptr) workspace = queue.Scratch(kWorkspaceBytes);
  if (workspace == nullptr) return;
  const float alpha = 1;
  const float beta = form.accumulate ? 1 : 0;
  const Plan& chosen = **plan;
  const cublasStatus_t code =
      cublasLtMatmul(static_cast<cublasLtHandle_t>(handle_), chosen.operation.get(), &alpha, b.data,
                     chosen.b.get(), a.data, chosen.a.get(), &beta, d.data, chosen.d.get(), d.data,
                     chosen.d.get(), &chosen.algorithm, workspace, kWorkspaceBytes, queue.stream());
  if (code != CUBLAS_STATUS_SUCCESS) queue.Fail(BlasStatus(code, "cublasLtMatmul"));
}

}  // namespace cuda

void CudaOps::Gemm(Queue& queue, const GemmForm& form, const Tensor& a, const Tensor& b,
                   const Tensor& d) {
  RunOnCuda(queue, [&](CudaQueue& on) { products_->Multiply(on, form, a, b, d); });
}

}  // namespace ckpt::trainer

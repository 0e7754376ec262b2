// Dense products by cuBLASLt.
//
// cuBLASLt's matrices are in column order. A row-major matrix is the transpose of a column-major
// one, so dᵀ = op(b)ᵀ · op(a)ᵀ is asked for: the operands change places and nothing is transposed
// in memory.
#include <algorithm>
#include <bit>
#include <string>
#include <utility>
#include <vector>

#include <cublasLt.h>
#include <cuda_runtime_api.h>

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

// Algorithms of a trial, for one product. Those after the first few have never been the best.
constexpr int kMaxCandidates = 5;

static_assert(sizeof(ProductAlgorithm) == sizeof(cublasLtMatmulAlgo_t));

cublasLtMatmulAlgo_t AsOfLibrary(const ProductAlgorithm& algorithm) {
  return std::bit_cast<cublasLtMatmulAlgo_t>(algorithm);
}

Result<AlgorithmOrigin> OriginHere() {
  int gpu = 0;
  cudaDeviceProp properties{};
  CKPT_RETURN_IF_ERROR(CudaStatus(cudaGetDevice(&gpu), "cudaGetDevice"));
  CKPT_RETURN_IF_ERROR(
      CudaStatus(cudaGetDeviceProperties(&properties, gpu), "cudaGetDeviceProperties"));
  return AlgorithmOrigin{.device = properties.name,
                         .library = "cuBLASLt " + std::to_string(cublasLtGetVersion())};
}

}  // namespace

struct Products::Plan {
  Operation operation;
  Layout a;
  Layout b;
  Layout d;
  std::vector<ProductAlgorithm> algorithms;
  const ProductTrial::Product* trial = nullptr;  // says which one; none: the first

  [[nodiscard]] cublasLtMatmulAlgo_t algorithm() const {
    return AsOfLibrary(algorithms[trial == nullptr ? 0 : trial->chosen]);
  }
};

Result<std::unique_ptr<Products>> Products::Create(ProductAlgorithms algorithms,
                                                   ProductTrial* trial) {
  CKPT_ASSIGN_OR_RETURN(AlgorithmOrigin here, OriginHere());
  if (algorithms.origin != AlgorithmOrigin() && algorithms.origin != here) {
    return Error(ErrorKind::kUnsupported, "algorithms of products are of another GPU or library")
        .Expected(here.device + ", " + here.library)
        .Actual(algorithms.origin.device + ", " + algorithms.origin.library)
        .Hint("ckpt-train bench --time-products FILE finds those of this machine");
  }
  if (trial != nullptr) trial->origin = std::move(here);
  cublasLtHandle_t handle = nullptr;
  CKPT_BLAS_OR_RETURN(cublasLtCreate(&handle));
  return std::unique_ptr<Products>(new Products(handle, std::move(algorithms), trial));
}

Products::Products(void* handle, ProductAlgorithms algorithms, ProductTrial* trial)
    : handle_(handle), given_(std::move(algorithms)), trial_(trial) {}

Products::~Products() { (void)cublasLtDestroy(static_cast<cublasLtHandle_t>(handle_)); }

Result<std::vector<ProductAlgorithm>> Products::FindAlgorithms(const ProductShape& shape,
                                                               const Plan& plan) {
  auto* const handle = static_cast<cublasLtHandle_t>(handle_);
  if (const auto given = given_.of_shape.find(shape); given != given_.of_shape.end()) {
    const cublasLtMatmulAlgo_t algorithm = AsOfLibrary(given->second);
    cublasLtMatmulHeuristicResult_t checked{};
    const cublasStatus_t code =
        cublasLtMatmulAlgoCheck(handle, plan.operation.get(), plan.b.get(), plan.a.get(),
                                plan.d.get(), plan.d.get(), &algorithm, &checked);
    if (code == CUBLAS_STATUS_SUCCESS && checked.workspaceSize <= kWorkspaceBytes) {
      return std::vector{given->second};
    }
    const std::string found =
        code == CUBLAS_STATUS_SUCCESS
            ? "one that needs " + std::to_string(checked.workspaceSize) + " bytes of workspace"
            : cublasLtGetStatusString(code);
    return Error(ErrorKind::kUnsupported,
                 "an algorithm of product_algorithms does not compute its product")
        .Expected("one for " + shape.Text())
        .Actual(found);
  }
  cublasLtMatmulPreference_t preference = nullptr;
  CKPT_BLAS_OR_RETURN(cublasLtMatmulPreferenceCreate(&preference));
  const Preference owned(preference);
  CKPT_BLAS_OR_RETURN(
      cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                           &kWorkspaceBytes, sizeof kWorkspaceBytes));
  std::vector<cublasLtMatmulHeuristicResult_t> found(trial_ == nullptr ? 1 : kMaxCandidates);
  int num_found = 0;
  CKPT_BLAS_OR_RETURN(cublasLtMatmulAlgoGetHeuristic(
      handle, plan.operation.get(), plan.b.get(), plan.a.get(), plan.d.get(), plan.d.get(),
      preference, static_cast<int>(found.size()), found.data(), &num_found));
  if (num_found == 0) return BlasStatus(CUBLAS_STATUS_NOT_SUPPORTED, "an algorithm for the shape");
  std::vector<ProductAlgorithm> algorithms;
  for (int i = 0; i < num_found; ++i) {
    algorithms.push_back(std::bit_cast<ProductAlgorithm>(found[static_cast<std::size_t>(i)].algo));
  }
  return algorithms;
}

Result<Products::Plan*> Products::PlanOf(const ProductShape& shape) {
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

  CKPT_ASSIGN_OR_RETURN(plan->algorithms, FindAlgorithms(shape, *plan));
  if (trial_ != nullptr) {
    ProductTrial::Product& product = trial_->products[shape];
    product.candidates = plan->algorithms;
    plan->trial = &product;
  }
  return plans_.emplace(shape, std::move(plan)).first->second.get();
}

void Products::Multiply(CudaQueue& queue, const GemmForm& form, const Tensor& a, const Tensor& b,
                        const Tensor& d, std::byte* workspace) {
  CKPT_CHECK(a.ndim == 2 && b.ndim == 2 && d.ndim == 2 && a.dtype == b.dtype);
  const ProductShape shape = {.m = d.dim(0),
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
  const cublasLtMatmulAlgo_t algorithm = chosen.algorithm();
  const cublasStatus_t code =
      cublasLtMatmul(static_cast<cublasLtHandle_t>(handle_), chosen.operation.get(), &alpha, b.data,
                     chosen.b.get(), a.data, chosen.a.get(), &beta, d.data, chosen.d.get(), d.data,
                     chosen.d.get(), &algorithm, workspace, kWorkspaceBytes, queue.stream());
  if (code != CUBLAS_STATUS_SUCCESS) queue.Fail(BlasStatus(code, "cublasLtMatmul"));
}

}  // namespace cuda

void CudaOps::Gemm(Queue& queue, const GemmForm& form, const Tensor& a, const Tensor& b,
                   const Tensor& d) {
  RunOnCuda(queue, [&](CudaQueue& on) { products_->Multiply(on, form, a, b, d); });
}

}  // namespace ckpt::trainer

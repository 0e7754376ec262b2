// Matrix products by cuBLASLt.
#ifndef CKPT_TRAINER_OPS_CUDA_PRODUCTS_H_
#define CKPT_TRAINER_OPS_CUDA_PRODUCTS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "core/base/result.h"
#include "trainer/device/cuda/cuda_queue.h"
#include "trainer/ops/ops.h"
#include "trainer/ops/product_algorithms.h"

namespace ckpt::trainer::cuda {

// Finds an algorithm the first time that it sees a shape, and keeps it: the one that it was given,
// or else the library's first choice.
//
// Thread-safety: the rank's thread.
class Products {
 public:
  // `trial`, if not null, gets the candidates of every shape, and says which of them computes. It
  // outlives the products. Errors: kSystem (cuBLASLt cannot start), kUnsupported (the
  // algorithms are of another kind of GPU or of another cuBLASLt).
  static Result<std::unique_ptr<Products>> Create(ProductAlgorithms algorithms,
                                                  ProductTrial* trial);
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  // What cuBLASLt's best kernels of Hopper ask for.
  static constexpr std::uint64_t kWorkspaceBytes = std::uint64_t{32} << 20;

  // d [m, n] = op(a) [m, k] · op(b) [k, n], or d += … . Sums are float32. `workspace` has
  // kWorkspaceBytes; null: the queue's scratch memory, which then holds none of the operands.
  void Multiply(CudaQueue& queue, const GemmForm& form, const Tensor& a, const Tensor& b,
                const Tensor& d, std::byte* workspace = nullptr);

 private:
  struct Plan;

  Products(void* handle, ProductAlgorithms algorithms, ProductTrial* trial);
  Result<Plan*> PlanOf(const ProductShape& shape);
  // The first is to be taken. Errors: kUnsupported (there is none, or the given one does not
  // compute this product here).
  Result<std::vector<ProductAlgorithm>> FindAlgorithms(const ProductShape& shape, const Plan& plan);

  void* const handle_;  // cublasLtHandle_t
  const ProductAlgorithms given_;
  ProductTrial* const trial_;
  std::map<ProductShape, std::unique_ptr<Plan>> plans_;
};

}  // namespace ckpt::trainer::cuda

#endif  // CKPT_TRAINER_OPS_CUDA_PRODUCTS_H_

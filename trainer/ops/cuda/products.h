// Matrix products by cuBLASLt.
#ifndef CKPT_TRAINER_OPS_CUDA_PRODUCTS_H_
#define CKPT_TRAINER_OPS_CUDA_PRODUCTS_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "core/base/result.h"
#include "core/tensor/dtype.h"
#include "trainer/device/cuda/cuda_queue.h"
#include "trainer/ops/ops.h"

namespace ckpt::trainer::cuda {

// Chooses an algorithm the first time that it sees a shape, and keeps it.
//
// Thread-safety: the rank's thread.
class Products {
 public:
  // Errors: kSystem (cuBLASLt cannot start).
  static Result<std::unique_ptr<Products>> Create();
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
  struct Shape {
    std::int64_t m = 0;
    std::int64_t n = 0;
    std::int64_t k = 0;
    bool transpose_a = false;
    bool transpose_b = false;
    bool accumulate = false;
    DType operands = DType::kFloat32;
    DType result = DType::kFloat32;

    auto operator<=>(const Shape&) const = default;
  };
  struct Plan;

  explicit Products(void* handle);
  Result<Plan*> PlanOf(const Shape& shape);

  void* const handle_;  // cublasLtHandle_t
  std::map<Shape, std::unique_ptr<Plan>> plans_;
};

}  // namespace ckpt::trainer::cuda

#endif  // CKPT_TRAINER_OPS_CUDA_PRODUCTS_H_

// Which of a library's algorithms computes each product of a run.
#ifndef CKPT_TRAINER_OPS_PRODUCT_ALGORITHMS_H_
#define CKPT_TRAINER_OPS_PRODUCT_ALGORITHMS_H_

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/tensor/dtype.h"

namespace ckpt::trainer {

// d [m, n] (=, +=) op(a) [m, k] · op(b) [k, n], as Ops::Gemm says.
struct ProductShape {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;
  DType operands = DType::kFloat32;
  DType result = DType::kFloat32;

  auto operator<=>(const ProductShape&) const = default;

  // "[16384, 6144] = [16384, 1024] · [6144, 1024]ᵀ, bfloat16 to float32"
  [[nodiscard]] std::string Text() const;
  [[nodiscard]] double num_multiplications() const {
    return static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
};

// As cuBLASLt stores it (cublasLtMatmulAlgo_t). It means something to one version of the library,
// on one kind of GPU.
using ProductAlgorithm = std::array<std::uint64_t, 8>;

// Whose algorithms they are: "NVIDIA H200", "cuBLASLt 130100".
struct AlgorithmOrigin {
  std::string device;
  std::string library;

  bool operator==(const AlgorithmOrigin&) const = default;
};

struct ProductAlgorithms {
  AlgorithmOrigin origin;
  std::map<ProductShape, ProductAlgorithm> of_shape;
};

// A file of algorithms is JSON. `name`, a path, appears in errors. Errors: kBadMetadata (syntax, a
// member that is missing or not known, the same product twice).
Result<ProductAlgorithms> ParseProductAlgorithms(std::string_view text, std::string_view name);
[[nodiscard]] std::string FormatProductAlgorithms(const ProductAlgorithms& algorithms);

// What the library offers for the products of a run, while the best are looked for: a product is
// computed by `candidates[chosen]` of its shape, as that stands when the work is enqueued.
struct ProductTrial {
  struct Product {
    std::vector<ProductAlgorithm> candidates;  // the library's own choice first
    std::size_t chosen = 0;
  };

  AlgorithmOrigin origin;
  std::map<ProductShape, Product> products;  // those that were computed so far

  // What is chosen now where it is not the library's own choice.
  [[nodiscard]] ProductAlgorithms Chosen() const;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPS_PRODUCT_ALGORITHMS_H_

// Dense products of the GPU against the CPU's, at sizes of real models and at odd ones.
#include <cmath>
#include <cstdint>

#include <gtest/gtest.h>

#include "tests/testing/matchers.h"
#include "tests/trainer/ops/cuda/twins.h"

namespace ckpt::trainer {
namespace {

using CudaProductsTest = Twins;

TEST_F(CudaProductsTest, ProductsOfEveryFormAgree) {
  struct Size {
    std::int64_t m, n, k;
  };
  for (const DType dtype : {DType::kFloat32, DType::kBfloat16}) {
    for (const Size size : {Size{1, 1, 1}, Size{3, 5, 7}, Size{64, 24, 40}, Size{512, 768, 1024},
                            Size{129, 257, 511}}) {
      for (const bool transpose_a : {false, true}) {
        for (const bool transpose_b : {false, true}) {
          for (const bool accumulate : {false, true}) {
            for (const DType result : {dtype, DType::kFloat32}) {
              const auto a =
                  transpose_a ? Random(dtype, {size.k, size.m}) : Random(dtype, {size.m, size.k});
              const auto b =
                  transpose_b ? Random(dtype, {size.n, size.k}) : Random(dtype, {size.k, size.n});
              const auto d = accumulate ? Random(result, {size.m, size.n})
                                        : Poisoned(result, {size.m, size.n});
              OnBoth([&](Ops& ops, Queue& queue) {
                ops.Gemm(queue,
                         {.transpose_a = transpose_a,
                          .transpose_b = transpose_b,
                          .accumulate = accumulate},
                         a, b, d);
              });
              SCOPED_TRACE(size.m);
              // cuBLASLt may round a bfloat16 product before it adds.
              ExpectNear(d, (accumulate ? 2 : 1) * BoundOf(result));
            }
          }
        }
      }
    }
  }
}

// Of 2,048 tokens of the benchmark's d1: forward, data and weights.
TEST_F(CudaProductsTest, ProductsOfRealSizesAgree) {
  constexpr std::int64_t kTokens = 2048;
  constexpr std::int64_t kIn = 1024;
  constexpr std::int64_t kOut = 6144;
  const auto x = Random(DType::kBfloat16, {kTokens, kIn});
  const auto weight = Random(DType::kBfloat16, {kOut, kIn});
  const auto dy = Random(DType::kBfloat16, {kTokens, kOut});
  const auto y = Poisoned(DType::kBfloat16, {kTokens, kOut});
  const auto dx = Poisoned(DType::kBfloat16, {kTokens, kIn});
  const auto dweight = Random(DType::kFloat32, {kOut, kIn});
  OnBoth([&](Ops& ops, Queue& queue) {
    ops.Gemm(queue, {.transpose_b = true}, x, weight, y);
    ops.Gemm(queue, {}, dy, weight, dx);
    ops.Gemm(queue, {.transpose_a = true, .accumulate = true}, dy, x, dweight);
  });
  for (const auto* result : {&y, &dx}) ExpectNear(*result, BoundOf(DType::kBfloat16));
  // A sum over all tokens, in another order.
  ExpectNear(dweight, BoundOf(DType::kFloat32) + 6e-8 * std::sqrt(static_cast<double>(kTokens)));
}

// Every algorithm that a trial offers computes the product, and so does the one that a file says.
TEST_F(CudaProductsTest, ProductsOfEveryAlgorithmAgree) {
  constexpr DType kDType = DType::kBfloat16;
  const auto x = Random(kDType, {1024, 512});
  const auto weight = Random(kDType, {768, 512});
  const auto y = Poisoned(kDType, {1024, 768});
  const auto agree = [&] {
    OnBoth([&](Ops& ops, Queue& queue) { ops.Gemm(queue, {.transpose_b = true}, x, weight, y); });
    ExpectNear(y, BoundOf(kDType));
  };
  ProductTrial trial;
  UseGpuOps({.trial = &trial});
  agree();
  ASSERT_EQ(trial.products.size(), 1U);
  ProductTrial::Product& product = trial.products.begin()->second;
  ASSERT_GT(product.candidates.size(), 1U);
  for (product.chosen = 0; product.chosen < product.candidates.size(); ++product.chosen) agree();
  --product.chosen;

  const ProductAlgorithms chosen = trial.Chosen();
  UseGpuOps({.algorithms = chosen});
  agree();
  UseGpuOps({});  // the trial's last use is over

  ProductAlgorithms of_another = chosen;
  of_another.origin.device += " Ultra";
  EXPECT_THAT(MakeCudaOps({.algorithms = of_another}), testing::FailsWith(ErrorKind::kUnsupported));
}

}  // namespace
}  // namespace ckpt::trainer

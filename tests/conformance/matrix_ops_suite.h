// What every Ops promises of matrix products. Instantiate MatrixOpsTest with backends.
#ifndef CKPT_TESTS_CONFORMANCE_MATRIX_OPS_SUITE_H_
#define CKPT_TESTS_CONFORMANCE_MATRIX_OPS_SUITE_H_

#include <cmath>
#include <cstdint>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/conformance/ops_fixture.h"
#include "tests/trainer/ops/finite_difference.h"
#include "trainer/ops/ops.h"

namespace ckpt::trainer {

class MatrixOpsTest : public OpsTest {
 protected:
  static constexpr DType kComputeDTypes[] = {DType::kFloat32, DType::kFloat64, DType::kBfloat16};

  struct Size {
    std::int64_t m = 0;
    std::int64_t n = 0;
    std::int64_t k = 0;
  };

  // op(a) · op(b) in double.
  static std::vector<double> Product(const GemmForm& form, const Size& size,
                                     const std::vector<double>& a, const std::vector<double>& b) {
    std::vector<double> d;
    for (std::int64_t i = 0; i < size.m; ++i) {
      for (std::int64_t j = 0; j < size.n; ++j) {
        double sum = 0;
        for (std::int64_t p = 0; p < size.k; ++p) {
          const std::int64_t at_a = form.transpose_a ? p * size.m + i : i * size.k + p;
          const std::int64_t at_b = form.transpose_b ? j * size.k + p : p * size.n + j;
          sum += a[static_cast<std::size_t>(at_a)] * b[static_cast<std::size_t>(at_b)];
        }
        d.push_back(sum);
      }
    }
    return d;
  }

  Array RandomA(DType dtype, const GemmForm& form, const Size& size) {
    return form.transpose_a ? Random(dtype, {size.k, size.m}) : Random(dtype, {size.m, size.k});
  }
  Array RandomB(DType dtype, const GemmForm& form, const Size& size) {
    return form.transpose_b ? Random(dtype, {size.n, size.k}) : Random(dtype, {size.k, size.n});
  }

  // Three experts in two segments each; the second has no rows in its first segment, the third none
  // at all. Rows 12 and 13 are nobody's.
  static constexpr std::int64_t kRows = 14;
  static constexpr std::int64_t kIn = 9;
  static constexpr std::int64_t kOut = 21;
  static constexpr std::int64_t kSegments = 2;
  const std::vector<double> kOffsets = {0, 3, 7, 7, 12, 12, 12};
  static std::int64_t ExpertOf(std::int64_t row) { return row < 7 ? 0 : 1; }
  // One of a stack of matrices [kOut, kIn].
  static std::vector<double> MatrixOf(const Array& stack, std::int64_t expert) {
    const std::vector<double> all = stack.Get();
    return {all.begin() + expert * kOut * kIn, all.begin() + (expert + 1) * kOut * kIn};
  }
};

TEST_P(MatrixOpsTest, GemmIsTheProductInEveryForm) {
  for (const Size& size : {Size{1, 1, 1}, Size{37, 53, 71}, Size{130, 5, 300}, Size{3, 600, 17},
                           Size{200, 190, 520}}) {
    for (const DType dtype : kComputeDTypes) {
      for (const int bits : {0, 1, 2, 3}) {
        const GemmForm form{.transpose_a = (bits & 1) != 0, .transpose_b = (bits & 2) != 0};
        SCOPED_TRACE(::testing::Message() << size.m << "x" << size.n << "x" << size.k << " "
                                          << DTypeName(dtype) << " form " << bits);
        const Array a = RandomA(dtype, form, size);
        const Array b = RandomB(dtype, form, size);
        const Array d = Make(dtype, {size.m, size.n});
        ops().Gemm(queue(), form, a, b, d);
        EXPECT_TRUE(AllNear(d.Get(), Product(form, size, a.Get(), b.Get()), ToleranceOf(dtype)));
      }
    }
  }
}

TEST_P(MatrixOpsTest, GemmOfNoTermsIsZeroAndOfNoRowsNothing) {
  const Array d = Make(DType::kFloat32, {3, 4});
  ops().Gemm(queue(), {}, Make(DType::kFloat32, {3, 0}), Make(DType::kFloat32, {0, 4}), d);
  EXPECT_THAT(d.Get(), ::testing::Each(0.0));
  ops().Gemm(queue(), {}, Make(DType::kFloat32, {0, 5}), Random(DType::kFloat32, {5, 4}),
             Make(DType::kFloat32, {0, 4}));
  EXPECT_THAT(queue().Synchronize(), testing::IsOk());
}

TEST_P(MatrixOpsTest, GemmPassesNaNOn) {
  std::vector<double> values = RandomValues(6 * 20);
  values[3 * 20 + 7] = std::nan("");
  const Array d = Make(DType::kFloat32, {6, 5});
  ops().Gemm(queue(), {}, Make(DType::kFloat32, {6, 20}, values), Random(DType::kFloat32, {20, 5}),
             d);
  const std::vector<double> got = d.Get();
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(std::isnan(got[i]), i / 5 == 3) << i;
}

TEST_P(MatrixOpsTest, GemmAccumulatesIntoGradientsOfEveryDType) {
  const Size size{45, 61, 83};
  const GemmForm form{.transpose_a = true, .accumulate = true};
  for (const DType dtype : kComputeDTypes) {
    for (const DType gradient : kGradientDTypes) {
      SCOPED_TRACE(::testing::Message() << DTypeName(dtype) << " into " << DTypeName(gradient));
      const Array a = RandomA(dtype, form, size);
      const Array b = RandomB(dtype, form, size);
      const Array d = Random(gradient, {size.m, size.n});
      std::vector<double> want = d.Get();
      const std::vector<double> product = Product(form, size, a.Get(), b.Get());
      for (std::size_t i = 0; i < want.size(); ++i) want[i] += product[i];
      ops().Gemm(queue(), form, a, b, d);
      const DType coarser = gradient == DType::kBfloat16 ? gradient : DType::kFloat32;
      EXPECT_TRUE(AllNear(d.Get(), want, ToleranceOf(coarser)));
    }
  }
}

TEST_P(MatrixOpsTest, GemmStoresGradientsOfEveryDType) {
  const Size size{45, 61, 83};
  for (const DType dtype : kComputeDTypes) {
    SCOPED_TRACE(DTypeName(dtype));
    const Array a = RandomA(dtype, {.transpose_a = true}, size);
    const Array b = RandomB(dtype, {.transpose_a = true}, size);
    ExpectStoresWhatItAddsToZeros({size.m, size.n}, [&](const Gradient& d) {
      ops().Gemm(queue(), {.transpose_a = true, .accumulate = d.adds()}, a, b, d.tensor);
    });
  }
}

TEST_P(MatrixOpsTest, FixedPointGradientsDoNotDependOnTheOrderOfContributions) {
  const Size size{19, 23, 40};
  const GemmForm form{.accumulate = true};
  std::vector<Array> a;
  std::vector<Array> b;
  for (int i = 0; i < 4; ++i) {
    a.push_back(RandomA(DType::kFloat32, form, size));
    b.push_back(RandomB(DType::kFloat32, form, size));
  }
  std::vector<std::vector<std::byte>> sums;
  for (const std::vector<std::size_t>& order :
       {std::vector<std::size_t>{0, 1, 2, 3}, {3, 1, 0, 2}}) {
    const Array d = Make(DType::kInt64, {size.m, size.n}, std::vector<double>(19 * 23));
    for (const std::size_t i : order) ops().Gemm(queue(), form, a[i], b[i], d);
    sums.push_back(d.Bytes());
  }
  EXPECT_EQ(sums[0], sums[1]);
}

TEST_P(MatrixOpsTest, FixedPointGradientsReportWhatDoesNotFit) {
  const Array a = Make(DType::kFloat32, {2, 1}, {1e30, 1});
  const Array b = Make(DType::kFloat32, {1, 2}, {-1e30, 2});  // -inf, 2e30 / -1e30, 2
  const Array d = Make(DType::kInt64, {2, 2}, {0, 0, 0, 0});
  ops().Gemm(queue(), {.accumulate = true}, a, b, d);
  EXPECT_THAT(d.Get(), ::testing::ElementsAre(::testing::IsNan(), ::testing::IsNan(),
                                              ::testing::IsNan(), 2.0));
}

TEST_P(MatrixOpsTest, GemmFormsAreEachOthersBackward) {
  const Size size{5, 7, 6};
  std::vector<double> a = RandomValues(size.m * size.k);
  std::vector<double> b = RandomValues(size.k * size.n);
  const std::vector<double> weights = RandomValues(size.m * size.n);
  const Array a_array = Make(DType::kFloat64, {size.m, size.k}, a);
  const Array b_array = Make(DType::kFloat64, {size.n, size.k}, b);
  const Array dy = Make(DType::kFloat64, {size.m, size.n}, weights);
  const Array da = Make(DType::kFloat64, {size.m, size.k});
  const Array db = Make(DType::kFloat64, {size.n, size.k}, std::vector<double>(b.size()));
  ops().Gemm(queue(), {}, dy, b_array, da);
  ops().Gemm(queue(), {.transpose_a = true, .accumulate = true}, dy, a_array, db);
  // y = a · bᵀ, a linear layer.
  const auto loss = [&] {
    const Array y = Make(DType::kFloat64, {size.m, size.n});
    ops().Gemm(queue(), {.transpose_b = true}, Make(DType::kFloat64, {size.m, size.k}, a),
               Make(DType::kFloat64, {size.n, size.k}, b), y);
    return SumOfProducts(y.Get(), weights);
  };
  EXPECT_TRUE(IsGradientOf(da.Get(), a, loss));
  EXPECT_TRUE(IsGradientOf(db.Get(), b, loss));
}

TEST_P(MatrixOpsTest, GroupedForwardMultipliesEveryRowWithItsWeightAndLeavesTheRest) {
  for (const DType dtype : kComputeDTypes) {
    const Array x = Random(dtype, {kRows, kIn});
    const Array weights = Random(dtype, {3, kOut, kIn});
    const Array offsets = Make(DType::kInt32, {7}, kOffsets);
    const Array y = Make(dtype, {kRows, kOut});
    ops().GroupedForward(queue(), x, weights, offsets, kSegments, y);
    const std::vector<double> all_x = x.Get();
    const std::vector<double> got = y.Get();
    std::vector<double> want;
    for (std::int64_t row = 0; row < 12; ++row) {
      const std::vector<double> one(all_x.begin() + row * kIn, all_x.begin() + (row + 1) * kIn);
      const std::vector<double> result =
          Product({.transpose_b = true}, {1, kOut, kIn}, one, MatrixOf(weights, ExpertOf(row)));
      want.insert(want.end(), result.begin(), result.end());
    }
    EXPECT_TRUE(AllNear({got.begin(), got.begin() + 12 * kOut}, want, ToleranceOf(dtype)))
        << DTypeName(dtype);
    EXPECT_THAT(std::vector<double>(got.begin() + 12 * kOut, got.end()),
                ::testing::Each(::testing::IsNan()));
  }
}

// As of a stack of which some matrices are frozen: the others have products of their own.
TEST_P(MatrixOpsTest, GroupedProductsOfSomeMatricesGiveTheirPartOfTheWhole) {
  const Array x = Random(DType::kFloat32, {kRows, kIn});
  const Array weights = Random(DType::kFloat32, {3, kOut, kIn});
  const Array offsets = Make(DType::kInt32, {7}, kOffsets);
  const Array whole = Make(DType::kFloat32, {kRows, kOut});
  const Array parts = Make(DType::kFloat32, {kRows, kOut});
  const Array dx_whole = Make(DType::kFloat32, {kRows, kIn});
  const Array dx_parts = Make(DType::kFloat32, {kRows, kIn});
  const Array dw_whole = Make(DType::kFloat32, {3, kOut, kIn});
  const Array dw_parts = Make(DType::kFloat32, {3, kOut, kIn});
  // Of what is behind the last range nothing is written, so that NaNs compare unequal: zeros.
  for (const Array* array : {&whole, &parts, &dx_whole, &dx_parts}) ops().Fill(queue(), *array, 0);
  const auto run = [&](std::int64_t first, std::int64_t count, const Tensor& y, const Tensor& dx,
                       const Tensor& dw) {
    const Tensor some = offsets.tensor().Rows(first * kSegments, count * kSegments + 1);
    ops().GroupedForward(queue(), x, weights.tensor().Rows(first, count), some, kSegments, y);
    ops().GroupedBackwardData(queue(), y, weights.tensor().Rows(first, count), some, kSegments, dx);
    ops().GroupedBackwardWeights(queue(), y, x, some, kSegments, Stored(dw.Rows(first, count)));
  };
  run(0, 3, whole, dx_whole, dw_whole);
  run(1, 2, parts, dx_parts, dw_parts);
  run(0, 1, parts, dx_parts, dw_parts);
  EXPECT_EQ(parts.Get(), whole.Get());
  EXPECT_EQ(dx_parts.Get(), dx_whole.Get());
  EXPECT_EQ(dw_parts.Get(), dw_whole.Get());
}

TEST_P(MatrixOpsTest, GroupedBackwardsAreTheDerivatives) {
  std::vector<double> x = RandomValues(kRows * kIn);
  std::vector<double> w = RandomValues(3 * kOut * kIn);
  const std::vector<double> dy = RandomValues(kRows * kOut);
  const Array offsets = Make(DType::kInt32, {7}, kOffsets);
  const auto loss = [&] {
    const Array y = Make(DType::kFloat64, {kRows, kOut}, std::vector<double>(dy.size()));
    ops().GroupedForward(queue(), Make(DType::kFloat64, {kRows, kIn}, x),
                         Make(DType::kFloat64, {3, kOut, kIn}, w), offsets, kSegments, y);
    return SumOfProducts(y.Get(), dy);
  };

  const Array x_array = Make(DType::kFloat64, {kRows, kIn}, x);
  const Array w_array = Make(DType::kFloat64, {3, kOut, kIn}, w);
  const Array dy_array = Make(DType::kFloat64, {kRows, kOut}, dy);
  const Array dx = Make(DType::kFloat64, {kRows, kIn}, std::vector<double>(x.size()));
  const Array dw = Make(DType::kFloat64, {3, kOut, kIn});
  ops().GroupedBackwardData(queue(), dy_array, w_array, offsets, kSegments, dx);
  ops().GroupedBackwardWeights(queue(), dy_array, x_array, offsets, kSegments, Stored(dw));

  EXPECT_TRUE(IsGradientOf(dx.Get(), x, loss));
  EXPECT_TRUE(IsGradientOf(dw.Get(), w, loss));
  EXPECT_THAT(MatrixOf(dw, 2), ::testing::Each(0.0));
}

TEST_P(MatrixOpsTest, GroupedBackwardWeightsAddsToGradientsOfEveryDType) {
  for (const DType dtype : kComputeDTypes) {
    for (const DType gradient : kGradientDTypes) {
      const Array x = Random(dtype, {kRows, kIn});
      const Array dy = Random(dtype, {kRows, kOut});
      const Array dweights = Random(gradient, {3, kOut, kIn});
      std::vector<double> want = dweights.Get();
      const std::vector<double> dy_values = dy.Get();
      const std::vector<double> x_values = x.Get();
      const std::vector<double> product =
          Product({.transpose_a = true}, {kOut, kIn, 5},
                  {dy_values.begin() + 7 * kOut, dy_values.begin() + 12 * kOut},
                  {x_values.begin() + 7 * kIn, x_values.begin() + 12 * kIn});
      ops().GroupedBackwardWeights(queue(), dy, x, Make(DType::kInt32, {7}, kOffsets), kSegments,
                                   Added(dweights));
      const std::vector<double> got = dweights.Get();
      const DType coarser = gradient == DType::kBfloat16 ? gradient : DType::kFloat32;
      for (std::size_t i = 0; i < product.size(); ++i) want[kOut * kIn + i] += product[i];
      EXPECT_TRUE(AllNear({got.begin() + kOut * kIn, got.end()},
                          {want.begin() + kOut * kIn, want.end()}, ToleranceOf(coarser)))
          << DTypeName(dtype) << " into " << DTypeName(gradient);
    }
  }
  const Array x = Random(DType::kFloat32, {kRows, kIn});
  ops().GroupedBackwardWeights(queue(), Random(DType::kFloat32, {kRows, kOut}), x,
                               Make(DType::kInt32, {7}, kOffsets), kSegments, {});  // frozen
}

TEST_P(MatrixOpsTest, GroupedBackwardWeightsStoresGradientsOfEveryDTypeAndZerosWithoutRows) {
  for (const DType dtype : kComputeDTypes) {
    SCOPED_TRACE(DTypeName(dtype));
    const Array x = Random(dtype, {kRows, kIn});
    const Array dy = Random(dtype, {kRows, kOut});
    const Array offsets = Make(DType::kInt32, {7}, kOffsets);
    ExpectStoresWhatItAddsToZeros({3, kOut, kIn}, [&](const Gradient& dweights) {
      ops().GroupedBackwardWeights(queue(), dy, x, offsets, kSegments, dweights);
    });
  }
}

// One contribution per segment, whatever rows lie behind it: what makes dispatch by all-to-all and
// by all-gather agree.
TEST_P(MatrixOpsTest, GroupedBackwardWeightsRoundsEverySegmentByItself) {
  const Array x = Random(DType::kFloat32, {kRows, kIn});
  const Array dy = Random(DType::kFloat32, {kRows, kOut});
  const Array together = Make(DType::kInt64, {1, kOut, kIn});
  const Array apart = Make(DType::kInt64, {1, kOut, kIn},
                           std::vector<double>(static_cast<std::size_t>(kOut * kIn)));
  ops().GroupedBackwardWeights(queue(), dy, x, Make(DType::kInt32, {3}, {0, 4, 12}), 2,
                               Stored(together));
  for (const std::vector<double>& rows : {std::vector<double>{4, 12}, {0, 4}}) {
    const auto begin = static_cast<std::int64_t>(rows[0]);
    const auto count = static_cast<std::int64_t>(rows[1] - rows[0]);
    ops().GroupedBackwardWeights(queue(), dy.tensor().Rows(begin, count),
                                 x.tensor().Rows(begin, count),
                                 Make(DType::kInt32, {2}, {0, double(count)}), 1, Added(apart));
    ASSERT_THAT(queue().Synchronize(), testing::IsOk());
  }
  EXPECT_EQ(together.Bytes(), apart.Bytes());
}

}  // namespace ckpt::trainer

#endif  // CKPT_TESTS_CONFORMANCE_MATRIX_OPS_SUITE_H_

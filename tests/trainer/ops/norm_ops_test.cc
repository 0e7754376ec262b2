#include "core/tensor/cast.h"
#include "tests/conformance/ops_suite.h"

namespace ckpt::trainer {
namespace {

constexpr std::int64_t kNormRows = 131;  // three blocks of summed rows
constexpr std::int64_t kNormColumns = 37;
constexpr double kEps = 1e-5;

struct NormReference {
  Values y;
  Values statistics;  // mean and rstd by row, rstd alone for RMSNorm
};

NormReference Norm(const Values& x, const Values& weight, const Values* bias, std::size_t columns) {
  NormReference reference;
  for (std::size_t row = 0; row < x.size() / columns; ++row) {
    const double* in = x.data() + row * columns;
    double mean = 0;
    if (bias != nullptr) {
      for (std::size_t i = 0; i < columns; ++i) mean += in[i] / static_cast<double>(columns);
      reference.statistics.push_back(mean);
    }
    double variance = 0;
    for (std::size_t i = 0; i < columns; ++i) {
      variance += (in[i] - mean) * (in[i] - mean) / static_cast<double>(columns);
    }
    const double rstd = 1 / std::sqrt(variance + kEps);
    reference.statistics.push_back(rstd);
    for (std::size_t i = 0; i < columns; ++i) {
      reference.y.push_back(weight[i] * ((in[i] - mean) * rstd) +
                            (bias == nullptr ? 0 : (*bias)[i]));
    }
  }
  return reference;
}

TEST_P(OpsSuite, RmsNormIsItsFormulaInEveryDtype) {
  for (const auto& [dtype, epsilon] : kComputeDTypes) {
    SCOPED_TRACE(DTypeName(dtype));
    const auto x = Make(dtype, {kNormRows, kNormColumns}, Uniform(kNormRows * kNormColumns));
    const auto weight = Make(dtype, {kNormColumns}, Uniform(kNormColumns));
    const auto y = Poisoned(dtype, {kNormRows, kNormColumns});
    const auto rstd = Poisoned(StatisticsOf(dtype), {kNormRows});
    ops().RmsNorm(queue(), x, weight, kEps, y, rstd);
    const NormReference want = Norm(Read(x), Read(weight), nullptr, kNormColumns);
    EXPECT_THAT(Read(y), NearValues(want.y, 4 * epsilon));
    EXPECT_THAT(Read(rstd), NearValues(want.statistics, dtype == DType::kFloat64 ? 1e-14 : 1e-6));
  }
}

// As Transformers' classes: to bfloat16, then times the weight, then to bfloat16 again.
TEST_P(OpsSuite, RmsNormRoundsBeforeAndAfterTheWeight) {
  const auto x = Make(DType::kBfloat16, {1, 3}, {1, 1.0078125, 3});
  const auto weight = Make(DType::kBfloat16, {3}, {1.0078125, 1.0078125, 1.5});
  const auto y = Poisoned(DType::kBfloat16, {1, 3});
  const auto rstd = Poisoned(DType::kFloat32, {1});
  ops().RmsNorm(queue(), x, weight, 0, y, rstd);
  const double scale = Read(rstd)[0];
  const auto round = [](double value) {
    return static_cast<double>(FromBf16Bits(ToBf16Bits(static_cast<float>(value))));
  };
  EXPECT_THAT(Read(y), ::testing::ElementsAre(round(1.0078125 * round(scale)),
                                              round(1.0078125 * round(1.0078125 * scale)),
                                              round(1.5 * round(3 * scale))));
}

TEST_P(OpsSuite, RmsNormBackwardIsTheSlopeOfTheForward) {
  const std::int64_t rows = 3;
  const std::int64_t columns = 5;
  const Values x = Uniform(rows * columns);
  const Values weight = Uniform(columns);
  const Values dy = Uniform(rows * columns);
  const auto loss = [&](const Values& at_x, const Values& at_weight) {
    return Dot(Norm(at_x, at_weight, nullptr, 5).y, dy);
  };
  const Values want_dx =
      NumericGradient(x, [&](const Values& moved) { return loss(moved, weight); });
  const Values want_dweight =
      NumericGradient(weight, [&](const Values& moved) { return loss(x, moved); });

  const auto x_t = Make(DType::kFloat64, {rows, columns}, x);
  const auto weight_t = Make(DType::kFloat64, {columns}, weight);
  const auto dy_t = Make(DType::kFloat64, {rows, columns}, dy);
  const auto rstd = Make(DType::kFloat64, {rows}, Norm(x, weight, nullptr, 5).statistics);
  const auto dx = Poisoned(DType::kFloat64, {rows, columns});
  const auto dweight = Make(DType::kFloat64, {columns}, Values(5, 10.0));
  ops().RmsNormBackward(queue(), dy_t, x_t, weight_t, rstd, false, dx, Added(dweight));
  EXPECT_THAT(Read(dx), NearValues(want_dx, 1e-8));
  Values accumulated = want_dweight;
  for (double& value : accumulated) value += 10;
  EXPECT_THAT(Read(dweight), NearValues(accumulated, 1e-8));

  // A frozen weight; the gradient of x added to what is there; then in place of dy.
  const Values overwritten = Read(dx);
  ops().RmsNormBackward(queue(), dy_t, x_t, weight_t, rstd, true, dx, {});
  Values doubled = overwritten;
  for (double& value : doubled) value *= 2;
  EXPECT_EQ(Read(dx), doubled);
  ops().RmsNormBackward(queue(), dy_t, x_t, weight_t, rstd, false, dy_t, {});
  EXPECT_EQ(Read(dy_t), overwritten);
}

TEST_P(OpsSuite, LayerNormIsItsFormulaInEveryDtype) {
  for (const auto& [dtype, epsilon] : kComputeDTypes) {
    SCOPED_TRACE(DTypeName(dtype));
    const auto x = Make(dtype, {kNormRows, kNormColumns}, Uniform(kNormRows * kNormColumns));
    const auto weight = Make(dtype, {kNormColumns}, Uniform(kNormColumns));
    const auto bias = Make(dtype, {kNormColumns}, Uniform(kNormColumns));
    const auto y = Poisoned(dtype, {kNormRows, kNormColumns});
    const auto statistics = Poisoned(StatisticsOf(dtype), {kNormRows, 2});
    ops().LayerNorm(queue(), x, weight, bias, kEps, y, statistics);
    const Values bias_values = Read(bias);
    const NormReference want = Norm(Read(x), Read(weight), &bias_values, kNormColumns);
    EXPECT_THAT(Read(y), NearValues(want.y, 4 * epsilon));
    EXPECT_THAT(Read(statistics),
                NearValues(want.statistics, dtype == DType::kFloat64 ? 1e-14 : 1e-6));
  }
}

TEST_P(OpsSuite, LayerNormBackwardIsTheSlopeOfTheForward) {
  const std::int64_t rows = 3;
  const std::int64_t columns = 5;
  const Values x = Uniform(rows * columns);
  const Values weight = Uniform(columns);
  const Values bias = Uniform(columns);
  const Values dy = Uniform(rows * columns);
  const auto loss = [&](const Values& at_x, const Values& at_weight, const Values& at_bias) {
    return Dot(Norm(at_x, at_weight, &at_bias, 5).y, dy);
  };
  const auto x_t = Make(DType::kFloat64, {rows, columns}, x);
  const auto weight_t = Make(DType::kFloat64, {columns}, weight);
  const auto dy_t = Make(DType::kFloat64, {rows, columns}, dy);
  const auto statistics = Make(DType::kFloat64, {rows, 2}, Norm(x, weight, &bias, 5).statistics);
  const auto dx = Poisoned(DType::kFloat64, {rows, columns});
  const auto dweight = Poisoned(DType::kFloat64, {columns});
  const auto dbias = Poisoned(DType::kFloat64, {columns});
  ops().LayerNormBackward(queue(), dy_t, x_t, weight_t, statistics, false, dx, Stored(dweight),
                          Stored(dbias));
  EXPECT_THAT(
      Read(dx),
      NearValues(NumericGradient(x, [&](const Values& moved) { return loss(moved, weight, bias); }),
                 1e-8));
  EXPECT_THAT(
      Read(dweight),
      NearValues(NumericGradient(weight, [&](const Values& moved) { return loss(x, moved, bias); }),
                 1e-8));
  EXPECT_THAT(
      Read(dbias),
      NearValues(NumericGradient(bias, [&](const Values& moved) { return loss(x, weight, moved); }),
                 1e-8));
  const Values overwritten = Read(dx);
  ops().LayerNormBackward(queue(), dy_t, x_t, weight_t, statistics, false, dy_t, {}, {});
  EXPECT_EQ(Read(dy_t), overwritten);
}

TEST_P(OpsSuite, NormGradientsTakeEveryDtype) {
  const auto x =
      Make(DType::kFloat32, {kNormRows, kNormColumns}, Uniform(kNormRows * kNormColumns));
  const auto dy =
      Make(DType::kFloat32, {kNormRows, kNormColumns}, Uniform(kNormRows * kNormColumns));
  const auto weight = Make(DType::kFloat32, {kNormColumns}, Uniform(kNormColumns));
  const auto rstd = Make(DType::kFloat32, {kNormRows},
                         Norm(Read(x), Read(weight), nullptr, kNormColumns).statistics);
  const auto dx = Poisoned(DType::kFloat32, {kNormRows, kNormColumns});
  const auto exact = Poisoned(DType::kFloat64, {kNormColumns});
  ops().RmsNormBackward(queue(), dy, x, weight, rstd, false, dx, Stored(exact));
  const struct {
    DType dtype;
    double tolerance;
  } cases[] = {{DType::kFloat32, 1e-7}, {DType::kBfloat16, 0x1p-8}, {DType::kInt64, 1e-10}};
  for (const auto& [dtype, tolerance] : cases) {
    SCOPED_TRACE(DTypeName(dtype));
    const auto dweight = Poisoned(dtype, {kNormColumns});
    ops().RmsNormBackward(queue(), dy, x, weight, rstd, false, dx, Stored(dweight));
    EXPECT_THAT(Read(dweight), NearValues(Read(exact), tolerance));
  }
}

TEST_P(OpsSuite, NormGradientsAreStoredOrAdded) {
  const auto x =
      Make(DType::kFloat32, {kNormRows, kNormColumns}, Uniform(kNormRows * kNormColumns));
  const auto dy =
      Make(DType::kFloat32, {kNormRows, kNormColumns}, Uniform(kNormRows * kNormColumns));
  const auto weight = Make(DType::kFloat32, {kNormColumns}, Uniform(kNormColumns));
  const auto rstd = Make(DType::kFloat32, {kNormRows}, Uniform(kNormRows, 1, 2));
  const auto statistics = Make(DType::kFloat32, {kNormRows, 2}, Uniform(2 * kNormRows, 1, 2));
  const auto dx = Poisoned(DType::kFloat32, {kNormRows, kNormColumns});
  ExpectStoresWhatItAddsToZeros({kNormColumns}, [&](const Gradient& dweight) {
    ops().RmsNormBackward(queue(), dy, x, weight, rstd, false, dx, dweight);
  });
  ExpectStoresWhatItAddsToZeros({kNormColumns}, [&](const Gradient& dweight) {
    ops().LayerNormBackward(queue(), dy, x, weight, statistics, false, dx, dweight, {});
  });
  ExpectStoresWhatItAddsToZeros({kNormColumns}, [&](const Gradient& dbias) {
    ops().LayerNormBackward(queue(), dy, x, weight, statistics, false, dx, {}, dbias);
  });
}

TEST_P(OpsSuite, NormsAreTheSameWithAnyNumberOfThreads) {
  const std::int64_t rows = 515;
  const std::int64_t columns = 129;
  const auto x = Make(DType::kFloat32, {rows, columns}, Uniform(rows * columns));
  const auto dy = Make(DType::kFloat32, {rows, columns}, Uniform(rows * columns));
  const auto weight = Make(DType::kFloat32, {columns}, Uniform(columns));
  ExpectSameWithAnyThreads([&] {
    const auto y = Poisoned(DType::kFloat32, {rows, columns});
    const auto statistics = Poisoned(DType::kFloat32, {rows, 2});
    const auto dx = Poisoned(DType::kFloat32, {rows, columns});
    const auto dweight = Poisoned(DType::kFloat32, {columns});
    const auto dbias = Poisoned(DType::kFloat32, {columns});
    ops().LayerNorm(queue(), x, weight, weight, kEps, y, statistics);
    ops().LayerNormBackward(queue(), dy, x, weight, statistics, false, dx, Stored(dweight),
                            Stored(dbias));
    return std::vector<Values>{Read(y), Read(statistics), Read(dx), Read(dweight), Read(dbias)};
  });
  ExpectSameWithAnyThreads([&] {
    const auto y = Poisoned(DType::kFloat32, {rows, columns});
    const auto rstd = Poisoned(DType::kFloat32, {rows});
    const auto dx = Poisoned(DType::kFloat32, {rows, columns});
    const auto dweight = Poisoned(DType::kFloat32, {columns});
    ops().RmsNorm(queue(), x, weight, kEps, y, rstd);
    ops().RmsNormBackward(queue(), dy, x, weight, rstd, false, dx, Stored(dweight));
    return std::vector<Values>{Read(y), Read(rstd), Read(dx), Read(dweight)};
  });
}

// The sum is rounded before it is normed, so the bits are those of an addition and a norm apart.
TEST_P(OpsSuite, AddRmsNormIsTheNormOfTheRoundedSum) {
  constexpr std::int64_t kSumRows = 23;
  constexpr std::int64_t kSumColumns = 61;
  for (const auto& [dtype, epsilon] : kComputeDTypes) {
    SCOPED_TRACE(DTypeName(dtype));
    const auto make = [&] {
      return Make(dtype, {kSumRows, kSumColumns}, Uniform(kSumRows * kSumColumns));
    };
    const auto x = make();
    const auto delta = make();
    const auto weight = Make(dtype, {kSumColumns}, Uniform(kSumColumns));
    const auto sum = Poisoned(dtype, {kSumRows, kSumColumns});
    const auto y = Poisoned(dtype, {kSumRows, kSumColumns});
    const auto rstd = Poisoned(StatisticsOf(dtype), {kSumRows});
    ops().AddRmsNorm(queue(), x, delta, weight, kEps, sum, y, rstd);

    Values want_sum = Read(x);
    const Values added = Read(delta);
    for (std::size_t i = 0; i < want_sum.size(); ++i) want_sum[i] += added[i];
    EXPECT_THAT(Read(sum), NearValues(want_sum, epsilon));
    const auto apart = Poisoned(dtype, {kSumRows, kSumColumns});
    const auto y_apart = Poisoned(dtype, {kSumRows, kSumColumns});
    const auto rstd_apart = Poisoned(StatisticsOf(dtype), {kSumRows});
    ops().Add(queue(), x, delta, apart);
    ops().RmsNorm(queue(), apart, weight, kEps, y_apart, rstd_apart);
    EXPECT_EQ(Read(sum), Read(apart));
    EXPECT_EQ(Read(y), Read(y_apart));
    EXPECT_EQ(Read(rstd), Read(rstd_apart));
    // Against the definition in float64: one rounding of the sum, one before the weight, one after.
    const Values w = Read(weight);
    Values want_y;
    for (std::size_t row = 0; row < kSumRows; ++row) {
      const double* in = want_sum.data() + row * kSumColumns;
      double squares = 0;
      for (std::size_t i = 0; i < kSumColumns; ++i) squares += in[i] * in[i];
      const double scale = 1 / std::sqrt(squares / kSumColumns + kEps);
      for (std::size_t i = 0; i < kSumColumns; ++i) want_y.push_back(w[i] * in[i] * scale);
    }
    EXPECT_THAT(Read(y), NearValues(want_y, (dtype == DType::kBfloat16 ? 3 : 8) * epsilon));

    // In place: the sum over delta, y over x.
    ops().AddRmsNorm(queue(), x, delta, weight, kEps, delta, x, rstd);
    EXPECT_EQ(Read(delta), Read(sum));
    EXPECT_EQ(Read(x), Read(y));
  }
}

}  // namespace
}  // namespace ckpt::trainer

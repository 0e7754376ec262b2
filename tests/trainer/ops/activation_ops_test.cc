#include "tests/conformance/ops_suite.h"

namespace ckpt::trainer {
namespace {

// The two activations through one table: inputs per output, the formula, the ops.
struct Activation {
  const char* name;
  std::int64_t inner_per_outer;
  double (*value)(const double* row, std::int64_t outer, std::int64_t i);
  void (Ops::*forward)(Queue&, const Tensor& x, const ActivationRows& rows, const Tensor& y);
  void (Ops::*backward)(Queue&, const Tensor& dy, const Tensor& x, const ActivationRows& rows,
                        const Tensor& dx, const Tensor& drow_weights, const Tensor& activated);
};

double SwiGluValue(const double* row, std::int64_t outer, std::int64_t i) {
  return row[i] / (1 + std::exp(-row[i])) * row[outer + i];
}
double GeluValue(const double* row, std::int64_t /*outer*/, std::int64_t i) {
  return row[i] * 0.5 * std::erfc(-row[i] / std::sqrt(2.0));
}

constexpr Activation kActivations[] = {
    {"SwiGlu", 2, SwiGluValue, &Ops::SwiGlu, &Ops::SwiGluBackward},
    {"Gelu", 1, GeluValue, &Ops::Gelu, &Ops::GeluBackward}};

Values Reference(const Activation& activation, const Values& x, const Values& row_weights,
                 std::int64_t outer) {
  Values y;
  for (std::size_t row = 0; row < row_weights.size(); ++row) {
    const double* in =
        x.data() + row * static_cast<std::size_t>(outer * activation.inner_per_outer);
    for (std::int64_t i = 0; i < outer; ++i) {
      y.push_back(activation.value(in, outer, i) * row_weights[row]);
    }
  }
  return y;
}

TEST_P(OpsSuite, ActivationsAreTheirFormulasInEveryDtype) {
  constexpr std::int64_t kRows = 13;
  constexpr std::int64_t kOuter = 37;
  for (const Activation& activation : kActivations) {
    for (const auto& [dtype, epsilon] : kComputeDTypes) {
      SCOPED_TRACE(::testing::Message() << activation.name << " " << DTypeName(dtype));
      const std::int64_t inner = kOuter * activation.inner_per_outer;
      const auto x = Make(dtype, {kRows, inner}, Uniform(kRows * inner, -8, 8));
      const auto row_weights = Make(StatisticsOf(dtype), {kRows}, Uniform(kRows));
      const auto y = Poisoned(dtype, {kRows, kOuter});
      (ops().*activation.forward)(queue(), x, {.weights = row_weights}, y);
      EXPECT_THAT(Read(y), NearValues(Reference(activation, Read(x), Read(row_weights), kOuter),
                                      4 * epsilon));
      (ops().*activation.forward)(queue(), x, {}, y);
      EXPECT_THAT(Read(y), NearValues(Reference(activation, Read(x), Values(kRows, 1.0), kOuter),
                                      4 * epsilon));
    }
  }
}

TEST_P(OpsSuite, ActivationsStayFiniteFarFromZero) {
  const Values far = {-1e30, -200, -90, 90, 200, 1e30};
  for (const Activation& activation : kActivations) {
    SCOPED_TRACE(activation.name);
    Values x = far;
    if (activation.inner_per_outer == 2) x.insert(x.end(), 6, 1.0);
    const auto x_t = Make(DType::kFloat32, {1, static_cast<std::int64_t>(x.size())}, x);
    const auto y = Poisoned(DType::kFloat32, {1, 6});
    const auto dx = Poisoned(DType::kFloat32, {1, static_cast<std::int64_t>(x.size())});
    (ops().*activation.forward)(queue(), x_t, {}, y);
    EXPECT_THAT(Read(y), NearValues(Values{0, 0, 0, 90, 200, 1e30}, 1e-6));
    (ops().*activation.backward)(queue(), Make(DType::kFloat32, {1, 6}, Values(6, 1.0)), x_t, {},
                                 dx, Tensor(), Tensor());
    Values slopes = Read(dx);
    slopes.resize(6);
    EXPECT_THAT(slopes, NearValues(Values{0, 0, 0, 1, 1, 1}, 1e-6));
  }
}

TEST_P(OpsSuite, ActivationBackwardsAreTheSlopesOfTheForwards) {
  constexpr std::int64_t kRows = 3;
  constexpr std::int64_t kOuter = 5;
  for (const Activation& activation : kActivations) {
    SCOPED_TRACE(activation.name);
    const std::int64_t inner = kOuter * activation.inner_per_outer;
    const Values x = Uniform(kRows * inner);
    const Values dy = Uniform(kRows * kOuter);
    const Values row_weights = Uniform(kRows);
    const auto x_t = Make(DType::kFloat64, {kRows, inner}, x);
    const auto dy_t = Make(DType::kFloat64, {kRows, kOuter}, dy);
    const auto row_weights_t = Make(DType::kFloat64, {kRows}, row_weights);
    const auto dx = Poisoned(DType::kFloat64, {kRows, inner});
    const auto drow_weights = Poisoned(DType::kFloat64, {kRows});
    (ops().*activation.backward)(queue(), dy_t, x_t, {.weights = row_weights_t}, dx, drow_weights,
                                 Tensor());
    const auto loss = [&](const Values& at_x, const Values& at_weights) {
      return Dot(Reference(activation, at_x, at_weights, kOuter), dy);
    };
    EXPECT_THAT(Read(dx),
                NearValues(NumericGradient(
                               x, [&](const Values& moved) { return loss(moved, row_weights); }),
                           1e-8));
    EXPECT_THAT(Read(drow_weights),
                NearValues(NumericGradient(row_weights,
                                           [&](const Values& moved) { return loss(x, moved); }),
                           1e-8));
    (ops().*activation.backward)(queue(), dy_t, x_t, {}, dx, Tensor(), Tensor());
    EXPECT_THAT(
        Read(dx),
        NearValues(NumericGradient(
                       x, [&](const Values& moved) { return loss(moved, Values(kRows, 1.0)); }),
                   1e-8));
    const Values apart = Read(dx);
    (ops().*activation.backward)(queue(), dy_t, x_t, {}, x_t, Tensor(), Tensor());
    EXPECT_EQ(Read(x_t), apart) << "in place of x";
  }
}

TEST_P(OpsSuite, ActivationBackwardsGiveTheBitsOfTheForwardAgain) {
  constexpr std::int64_t kRows = 13;
  constexpr std::int64_t kOuter = 37;
  for (const Activation& activation : kActivations) {
    for (const auto& [dtype, epsilon] : kComputeDTypes) {
      for (const bool weighted : {false, true}) {
        SCOPED_TRACE(::testing::Message() << activation.name << " " << DTypeName(dtype));
        const std::int64_t inner = kOuter * activation.inner_per_outer;
        const auto x = Make(dtype, {kRows, inner}, Uniform(kRows * inner, -8, 8));
        const auto dy = Make(dtype, {kRows, kOuter}, Uniform(kRows * kOuter));
        const auto row_weights = Make(StatisticsOf(dtype), {kRows}, Uniform(kRows));
        const ActivationRows rows = {.weights = weighted ? row_weights.tensor() : Tensor()};
        const auto y = Poisoned(dtype, {kRows, kOuter});
        const auto dx = Poisoned(dtype, {kRows, inner});
        const auto dx_alone = Poisoned(dtype, {kRows, inner});
        const auto drow_weights = Poisoned(StatisticsOf(dtype), {kRows});
        const Tensor dp = weighted ? drow_weights.tensor() : Tensor();
        (ops().*activation.forward)(queue(), x, rows, y);
        (ops().*activation.backward)(queue(), dy, x, rows, dx_alone, dp, {});
        (ops().*activation.backward)(queue(), dy, x, rows, dx, dp, dy);  // in place of dy
        EXPECT_EQ(Read(dy), Read(y));
        EXPECT_EQ(Read(dx), Read(dx_alone));
      }
    }
  }
}

// Of rows that are not in use nothing is read or written.
TEST_P(OpsSuite, ActivationsLeaveRowsAloneThatAreNotInUse) {
  constexpr std::int64_t kRows = 9;
  constexpr std::int64_t kUsed = 5;
  constexpr std::int64_t kOuter = 7;
  for (const Activation& activation : kActivations) {
    SCOPED_TRACE(activation.name);
    const std::int64_t inner = kOuter * activation.inner_per_outer;
    const auto x = Make(DType::kFloat32, {kRows, inner}, Uniform(kRows * inner));
    const auto dy = Make(DType::kFloat32, {kRows, kOuter}, Uniform(kRows * kOuter));
    const auto row_weights = Make(DType::kFloat32, {kRows}, Uniform(kRows));
    const auto count = Make(DType::kInt32, {1}, {kUsed});
    std::vector<std::vector<Values>> results;
    for (const Tensor& used : {Tensor(), count.tensor()}) {
      const ActivationRows rows = {.weights = row_weights, .count = used};
      const auto y = Poisoned(DType::kFloat32, {kRows, kOuter});
      const auto dx = Poisoned(DType::kFloat32, {kRows, inner});
      const auto drow_weights = Poisoned(DType::kFloat32, {kRows});
      (ops().*activation.forward)(queue(), x, rows, y);
      (ops().*activation.backward)(queue(), dy, x, rows, dx, drow_weights, Tensor());
      results.push_back({Read(y), Read(dx), Read(drow_weights)});
    }
    for (std::size_t i = 0; i < results[0].size(); ++i) {
      const auto end = static_cast<std::ptrdiff_t>(results[0][i].size() * kUsed / kRows);
      const Values& got = results[1][i];
      EXPECT_EQ(Values(got.begin(), got.begin() + end),
                Values(results[0][i].begin(), results[0][i].begin() + end));
      EXPECT_THAT(Values(got.begin() + end, got.end()), ::testing::Each(::testing::IsNan()));
    }
  }
}

TEST_P(OpsSuite, ActivationsAreTheSameWithAnyNumberOfThreads) {
  constexpr std::int64_t kRows = 301;
  constexpr std::int64_t kOuter = 131;
  for (const Activation& activation : kActivations) {
    SCOPED_TRACE(activation.name);
    const std::int64_t inner = kOuter * activation.inner_per_outer;
    const auto x = Make(DType::kFloat32, {kRows, inner}, Uniform(kRows * inner));
    const auto dy = Make(DType::kFloat32, {kRows, kOuter}, Uniform(kRows * kOuter));
    const auto row_weights = Make(DType::kFloat32, {kRows}, Uniform(kRows));
    ExpectSameWithAnyThreads([&] {
      const auto y = Poisoned(DType::kFloat32, {kRows, kOuter});
      const auto dx = Poisoned(DType::kFloat32, {kRows, inner});
      const auto drow_weights = Poisoned(DType::kFloat32, {kRows});
      (ops().*activation.forward)(queue(), x, {.weights = row_weights}, y);
      (ops().*activation.backward)(queue(), dy, x, {.weights = row_weights}, dx, drow_weights,
                                   Tensor());
      return std::vector<Values>{Read(y), Read(dx), Read(drow_weights)};
    });
  }
}

}  // namespace
}  // namespace ckpt::trainer

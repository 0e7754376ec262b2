// What the tests of norms, activations, routing and optimizers share:
// tests/trainer/ops/*_ops_test.cc. A program that links them instantiates the suite with its
// backends:
//
//   INSTANTIATE_TEST_SUITE_P(Host, OpsSuite, ::testing::ValuesIn(HostBackends()), BackendName);
#ifndef CKPT_TESTS_CONFORMANCE_OPS_SUITE_H_
#define CKPT_TESTS_CONFORMANCE_OPS_SUITE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/conformance/ops_fixture.h"
#include "tests/trainer/ops/finite_difference.h"
#include "trainer/ops/ops.h"

namespace ckpt::trainer {

using Values = std::vector<double>;

class OpsSuite : public OpsTest {
 protected:
  // Of the dtypes that activations may have, with the relative precision of one.
  struct ComputeDType {
    DType dtype;
    double epsilon;
  };
  static constexpr ComputeDType kComputeDTypes[] = {
      {DType::kFloat64, 0x1p-52}, {DType::kFloat32, 0x1p-23}, {DType::kBfloat16, 0x1p-8}};

  // An output that nothing was written to.
  Array Poisoned(DType dtype, std::initializer_list<std::int64_t> sizes) {
    return Make(dtype, sizes);
  }
  static Values Read(const Array& array) { return array.Get(); }

  Values Uniform(std::int64_t count, double low = -2, double high = 2) {
    std::uniform_real_distribution<double> draw(low, high);
    Values values(static_cast<std::size_t>(count));
    for (double& value : values) value = draw(random_);
    return values;
  }
  // Uniform in [0, limit).
  Values RandomIndices(std::int64_t count, std::int64_t limit) {
    std::uniform_int_distribution<std::int64_t> draw(0, limit - 1);
    Values values(static_cast<std::size_t>(count));
    for (double& value : values) value = static_cast<double>(draw(random_));
    return values;
  }

  // What `run` returns has the bits of one thread for other numbers of threads.
  void ExpectSameWithAnyThreads(const std::function<std::vector<Values>()>& run) {
    if (!GetParam().with_threads) return;
    const std::vector<Values> once = run();
    for (const int threads : {1, 2, 3, 5}) {
      other_ops_ = GetParam().with_threads(threads);
      EXPECT_EQ(run(), once) << threads << " threads";
    }
    other_ops_.reset();
  }
  Ops& ops() { return other_ops_ ? *other_ops_ : OpsTest::ops(); }

  // dL/dx by differences of `loss`, a function of x in double precision.
  static Values NumericGradient(Values x, const std::function<double(const Values&)>& loss) {
    Values gradient;
    for (std::size_t i = 0; i < x.size(); ++i) {
      gradient.push_back(CentralDifference(x, i, [&] { return loss(x); }));
    }
    return gradient;
  }

  std::mt19937_64& random() { return random_; }

  // The arrays of ExpertRows.
  struct RowArrays {
    Array rows, choices, offsets;

    [[nodiscard]] ExpertRows view() const { return {rows, choices, offsets}; }
  };
  RowArrays MakeRows(std::int64_t tokens, std::int64_t topk, std::int64_t experts,
                     std::int64_t max_rows) {
    return {Poisoned(DType::kInt32, {tokens, topk}), Poisoned(DType::kInt32, {max_rows}),
            Poisoned(DType::kInt32, {experts + 1})};
  }
  // Tokens 0, 1, 2 in two slots; row 1 belongs to no choice, one choice has no row, and the last
  // two rows are not in use.
  RowArrays SomeRows() {
    return {Make(DType::kInt32, {3, 2}, {4, 0, 2, -1, 3, 5}),
            Make(DType::kInt32, {8}, {1, -1, 2, 4, 0, 5, 99, 99}),
            Make(DType::kInt32, {3}, {0, 2, 6})};
  }
  // An int64 that counts, although an array reads it as fixed point.
  Array Counter() { return Make(DType::kInt64, {1}, {0}); }
  static double CountOf(const Array& counter) { return Read(counter)[0] * 0x1p40; }

 private:
  std::unique_ptr<Ops> other_ops_;
  std::mt19937_64 random_{20260};
};

inline double Dot(const Values& a, const Values& b) { return SumOfProducts(a, b); }

// Every element within `tolerance` of the wanted one, relative to the largest wanted. A NaN fails.
MATCHER_P2(NearValues, wanted, tolerance, "") {
  if (arg.size() != wanted.size()) {
    *result_listener << arg.size() << " values for " << wanted.size();
    return false;
  }
  double largest = 0;
  for (const double value : wanted) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < arg.size(); ++i) {
    if (std::abs(arg[i] - wanted[i]) <= tolerance * std::max(largest, 1e-30)) continue;
    *result_listener << "at " << i << ": " << arg[i] << " for " << wanted[i]
                     << " among values up to " << largest;
    return false;
  }
  return true;
}

}  // namespace ckpt::trainer

#endif  // CKPT_TESTS_CONFORMANCE_OPS_SUITE_H_

// What every Ops promises, whichever device computes it. The tests are in
// tests/trainer/ops/*_ops_test.cc; a program that links them instantiates the suite with its
// backends:
//
//   INSTANTIATE_TEST_SUITE_P(Host, OpsSuite, ::testing::Values(OpsBackend{…}), OpsBackendName);
#ifndef CKPT_TESTS_CONFORMANCE_OPS_SUITE_H_
#define CKPT_TESTS_CONFORMANCE_OPS_SUITE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/device_values.h"
#include "tests/testing/matchers.h"
#include "trainer/device/device.h"
#include "trainer/ops/ops.h"

namespace ckpt::trainer {

struct OpsBackend {
  std::string name;
  std::function<std::unique_ptr<Device>()> make_device;
  // Results do not depend on `threads`; a backend without threads ignores it.
  std::function<std::unique_ptr<Ops>(int threads)> make_ops;
};
inline void PrintTo(const OpsBackend& backend, std::ostream* os) { *os << backend.name; }
inline std::string OpsBackendName(const ::testing::TestParamInfo<OpsBackend>& test) {
  return test.param.name;
}

// A tensor and its memory.
struct OwnedTensor {
  Buffer buffer;
  Tensor tensor;

  operator const Tensor&() const { return tensor; }  // NOLINT(google-explicit-constructor)
};

using Values = std::vector<double>;

class OpsSuite : public ::testing::TestWithParam<OpsBackend> {
 protected:
  // Of the dtypes that activations may have, with the relative precision of one.
  struct ComputeDType {
    DType dtype;
    double epsilon;
  };
  static constexpr ComputeDType kComputeDTypes[] = {
      {DType::kFloat64, 0x1p-52}, {DType::kFloat32, 0x1p-23}, {DType::kBfloat16, 0x1p-8}};
  static DType StatisticsOf(DType dtype) {
    return dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  }

  OpsSuite()
      : device_(GetParam().make_device()),
        queue_(device_->MakeQueue("test")),
        ops_(GetParam().make_ops(1)) {
    const char* seed = std::getenv("CKPT_TEST_SEED");
    seed_ = seed == nullptr ? 20260 : std::strtoull(seed, nullptr, 10);
    random_.seed(seed_);
  }
  ~OpsSuite() override {
    if (HasFailure()) RecordProperty("replay", "CKPT_TEST_SEED=" + std::to_string(seed_));
  }

  OwnedTensor Make(DType dtype, std::initializer_list<std::int64_t> sizes, const Values& values) {
    OwnedTensor made = Allocate(dtype, sizes);
    testing::WriteValues(*device_, *queue_, values, made.tensor);
    return made;
  }
  // An output that nothing was written to: NaN, or an integer that no result is.
  OwnedTensor Poisoned(DType dtype, std::initializer_list<std::int64_t> sizes) {
    OwnedTensor made = Allocate(dtype, sizes);
    const bool is_integer = dtype == DType::kInt32 || dtype == DType::kInt64;
    testing::WriteValues(*device_, *queue_,
                         Values(static_cast<std::size_t>(made.tensor.num_elems()),
                                is_integer ? -123456.0 : std::nan("")),
                         made.tensor);
    return made;
  }
  Values Read(const Tensor& tensor) { return testing::ReadValues(*device_, *queue_, tensor); }

  Values Random(std::int64_t count, double low = -2, double high = 2) {
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

  // The bits of what `run` returns are those of one thread for other numbers of threads.
  void ExpectSameWithAnyThreads(const std::function<std::vector<Values>()>& run) {
    const std::vector<Values> once = run();
    for (const int threads : {2, 3, 5}) {
      ops_ = GetParam().make_ops(threads);
      EXPECT_EQ(run(), once) << threads << " threads";
    }
    ops_ = GetParam().make_ops(1);
  }

  // dL/dx by central differences of `loss`, a function of x in double precision.
  static Values NumericGradient(const Values& x, const std::function<double(const Values&)>& loss,
                                double step = 1e-5) {
    Values gradient;
    Values moved = x;
    for (std::size_t i = 0; i < x.size(); ++i) {
      moved[i] = x[i] + step;
      const double above = loss(moved);
      moved[i] = x[i] - step;
      gradient.push_back((above - loss(moved)) / (2 * step));
      moved[i] = x[i];
    }
    return gradient;
  }

  Ops& ops() { return *ops_; }
  Queue& queue() { return *queue_; }
  std::mt19937_64& random() { return random_; }

 private:
  OwnedTensor Allocate(DType dtype, std::initializer_list<std::int64_t> sizes) {
    Tensor tensor(nullptr, dtype, sizes);
    // One byte more: an empty tensor is not an absent one.
    Result<Buffer> buffer = device_->Allocate(tensor.size_bytes() + 1, MemoryUse::kOther);
    CKPT_CHECK(buffer.ok());
    tensor.data = buffer->data();
    return {std::move(*buffer), tensor};
  }

  const std::unique_ptr<Device> device_;
  const std::unique_ptr<Queue> queue_;
  std::unique_ptr<Ops> ops_;
  std::uint64_t seed_ = 0;
  std::mt19937_64 random_;
};

inline double Dot(const Values& a, const Values& b) {
  CKPT_CHECK(a.size() == b.size());
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

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

// What the conformance suites of Ops share: a backend under test and arrays in its memory.
#ifndef CKPT_TESTS_CONFORMANCE_OPS_FIXTURE_H_
#define CKPT_TESTS_CONFORMANCE_OPS_FIXTURE_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <memory>
#include <ostream>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "core/base/check.h"
#include "core/tensor/cast.h"
#include "tests/testing/matchers.h"
#include "trainer/device/device.h"
#include "trainer/ops/fixed_point.h"
#include "trainer/ops/ops.h"

namespace ckpt::trainer {

// An implementation of Ops with the device that it runs on.
struct OpsBackend {
  std::string name;
  std::function<std::unique_ptr<Device>()> make_device;
  std::function<std::unique_ptr<Ops>()> make_ops;
  // The same with another number of threads, which results do not depend on; null where there are
  // none.
  std::function<std::unique_ptr<Ops>(int threads)> with_threads = {};
};
inline void PrintTo(const OpsBackend& backend, std::ostream* os) { *os << backend.name; }

class OpsTest : public ::testing::TestWithParam<OpsBackend> {
 protected:
  // An array on the device, filled and read as doubles. Fixed-point numbers are read as what they
  // stand for.
  class Array {
   public:
    Array(OpsTest& test, DType dtype, std::initializer_list<std::int64_t> dims) : test_(&test) {
      const Tensor shape(nullptr, dtype, dims);
      Result<Buffer> buffer = test.device_->Allocate(shape.size_bytes(), MemoryUse::kOther);
      CKPT_CHECK(buffer.ok());
      buffer_ = std::move(buffer).value();
      tensor_ = Tensor(buffer_.data(), dtype, dims);
      Poison();
    }

    Array(Array&&) = default;
    Array& operator=(Array&&) = default;
    ~Array() {
      // A queue with a thread may still use it.
      if (buffer_.data() != nullptr) (void)test_->queue().Synchronize();
    }

    // NOLINTNEXTLINE(google-explicit-constructor): an array stands for its tensor
    operator const Tensor&() const { return tensor_; }
    [[nodiscard]] const Tensor& tensor() const { return tensor_; }

    // NaN in every floating-point dtype: what an op does not overwrite shows.
    void Poison() { Upload(std::vector<std::byte>(tensor_.size_bytes(), std::byte{0xFF})); }

    void Set(const std::vector<double>& values) {
      CKPT_CHECK(static_cast<std::int64_t>(values.size()) == tensor_.num_elems());
      std::vector<std::byte> bytes(tensor_.size_bytes());
      if (tensor_.dtype == DType::kInt32) {
        Convert<std::int32_t>(values, bytes, [](double x) { return static_cast<std::int32_t>(x); });
      } else if (tensor_.dtype == DType::kInt64) {
        Convert<std::int64_t>(values, bytes, ToFixedPoint);
      } else {
        CastElements(DType::kFloat64, std::as_bytes(std::span(values)), tensor_.dtype, bytes);
      }
      Upload(bytes);
    }

    [[nodiscard]] std::vector<double> Get() const {
      const std::vector<std::byte> bytes = Bytes();
      std::vector<double> values(static_cast<std::size_t>(tensor_.num_elems()));
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (tensor_.dtype == DType::kInt32) {
          std::int32_t x = 0;
          std::memcpy(&x, bytes.data() + i * sizeof x, sizeof x);
          values[i] = x;
        } else if (tensor_.dtype == DType::kInt64) {
          std::int64_t x = 0;
          std::memcpy(&x, bytes.data() + i * sizeof x, sizeof x);
          values[i] = FromFixedPoint(x);
        }
      }
      if (IsCastable(tensor_.dtype)) {
        CastElements(tensor_.dtype, bytes, DType::kFloat64,
                     MutableByteSpan(reinterpret_cast<std::byte*>(values.data()),
                                     values.size() * sizeof(double)));
      }
      return values;
    }

    [[nodiscard]] std::vector<std::byte> Bytes() const {
      std::vector<std::byte> bytes(tensor_.size_bytes());
      test_->device_->CopyToHost(test_->queue(), tensor_, bytes.data());
      EXPECT_THAT(test_->queue().Synchronize(), testing::IsOk());
      return bytes;
    }

    void Upload(const std::vector<std::byte>& bytes) {
      test_->device_->CopyFromHost(test_->queue(), bytes.data(), tensor_);
      EXPECT_THAT(test_->queue().Synchronize(), testing::IsOk());
    }

   private:
    template <typename T, typename Function>
    static void Convert(const std::vector<double>& values, std::vector<std::byte>& bytes,
                        Function convert) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        const T x = convert(values[i]);
        std::memcpy(bytes.data() + i * sizeof x, &x, sizeof x);
      }
    }
    OpsTest* test_;
    Buffer buffer_;
    Tensor tensor_;
  };

  OpsTest()
      : device_(GetParam().make_device()),
        ops_(GetParam().make_ops()),
        queue_(device_->MakeQueue("test")) {}

  [[nodiscard]] Ops& ops() { return *ops_; }
  [[nodiscard]] Queue& queue() { return *queue_; }

  // Poisoned.
  Array Make(DType dtype, std::initializer_list<std::int64_t> dims) { return {*this, dtype, dims}; }
  Array Make(DType dtype, std::initializer_list<std::int64_t> dims,
             const std::vector<double>& values) {
    Array array(*this, dtype, dims);
    array.Set(values);
    return array;
  }
  // One of the structs of step_scalars.h on the device, and what it is there.
  template <typename T>
  Array Scalars(const T& values) {
    Array array(*this, DType::kInt64, {kWordsOf<T>});
    const auto* bytes = reinterpret_cast<const std::byte*>(&values);
    array.Upload({bytes, bytes + sizeof values});
    return array;
  }
  template <typename T>
  static T ScalarsIn(const Array& array) {
    T values;
    std::memcpy(&values, array.Bytes().data(), sizeof values);
    return values;
  }
  static Gradient Stored(const Tensor& tensor) {
    return {.tensor = tensor, .write = GradWrite::kStore};
  }
  static Gradient Added(const Tensor& tensor) {
    return {.tensor = tensor, .write = GradWrite::kAdd};
  }
  static constexpr DType kComputeDTypes[] = {DType::kFloat32, DType::kFloat64, DType::kBfloat16};
  // Of a row's numbers, such as a sum of exponentials, beside activations of `compute`.
  static DType StatisticsOf(DType compute) {
    return compute == DType::kFloat64 ? compute : DType::kFloat32;
  }
  static constexpr DType kGradientDTypes[] = {DType::kFloat32, DType::kFloat64, DType::kBfloat16,
                                              DType::kInt64};
  // What `write` stores over NaNs is what it adds to zeros.
  void ExpectStoresWhatItAddsToZeros(std::initializer_list<std::int64_t> dims,
                                     const std::function<void(const Gradient&)>& write) {
    for (const DType dtype : kGradientDTypes) {
      const Array stored = Make(dtype, dims);
      Array added = Make(dtype, dims);
      added.Set(std::vector<double>(static_cast<std::size_t>(added.tensor().num_elems())));
      write(Stored(stored));
      write(Added(added));
      EXPECT_EQ(stored.Get(), added.Get()) << DTypeName(dtype);
      // Again: a store forgets, a sum does not.
      write(Stored(stored));
      EXPECT_EQ(stored.Get(), added.Get()) << DTypeName(dtype);
      write(Added(added));
      EXPECT_NE(stored.Get(), added.Get()) << DTypeName(dtype);
    }
  }
  // Normal numbers, rounded to the dtype; the same in every run.
  Array Random(DType dtype, std::initializer_list<std::int64_t> dims) {
    Array array(*this, dtype, dims);
    array.Set(RandomValues(array.tensor().num_elems()));
    return array;
  }
  std::vector<double> RandomValues(std::int64_t count) {
    std::vector<double> values(static_cast<std::size_t>(count));
    std::normal_distribution<double> normal;
    for (double& value : values) value = normal(rng_);
    return values;
  }

 private:
  std::mt19937_64 rng_{20240731};
  std::unique_ptr<Device> device_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Queue> queue_;
};

// Whether every element is within `tolerance` of what is wanted, relative to the largest that is
// wanted, or to 1 where all are smaller.
inline ::testing::AssertionResult AllNear(const std::vector<double>& got,
                                          const std::vector<double>& want, double tolerance) {
  if (got.size() != want.size()) {
    return ::testing::AssertionFailure() << got.size() << " elements, not " << want.size();
  }
  double largest = 1;
  for (const double x : want) largest = std::max(largest, std::abs(x));
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!(std::abs(got[i] - want[i]) <= tolerance * largest)) {
      return ::testing::AssertionFailure() << "element " << i << ": " << got[i] << ", not "
                                           << want[i] << " (largest " << largest << ")";
    }
  }
  return ::testing::AssertionSuccess();
}

// What rounding to a dtype and summing a few hundred terms in its compute type may cost, relative
// to the largest result.
inline double ToleranceOf(DType dtype) {
  if (dtype == DType::kFloat64) return 1e-13;
  return dtype == DType::kBfloat16 ? 0x1p-8 : 2e-6;
}

inline double SumOfProducts(const std::vector<double>& a, const std::vector<double>& b) {
  CKPT_CHECK(a.size() == b.size());
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace ckpt::trainer

#endif  // CKPT_TESTS_CONFORMANCE_OPS_FIXTURE_H_

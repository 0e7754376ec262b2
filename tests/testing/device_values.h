// Values of device tensors, by way of the host.
#ifndef CKPT_TESTS_TESTING_DEVICE_VALUES_H_
#define CKPT_TESTS_TESTING_DEVICE_VALUES_H_

#include <cstdint>
#include <type_traits>
#include <vector>

#include "core/base/check.h"
#include "core/tensor/cast.h"
#include "trainer/device/device.h"

namespace ckpt::testing {

// Calls `visit(T{})` with the C++ type that stands for `dtype`; bfloat16 is its bits.
template <typename Visitor>
auto VisitDType(DType dtype, Visitor visit) {
  switch (dtype) {
    case DType::kFloat64:
      return visit(double{});
    case DType::kFloat32:
      return visit(float{});
    case DType::kBfloat16:
      return visit(std::uint16_t{});
    case DType::kInt32:
      return visit(std::int32_t{});
    default:
      CKPT_CHECK(dtype == DType::kInt64);
      return visit(std::int64_t{});
  }
}

// Waits for the queue. Its failure ends the test program.
inline std::vector<double> ReadValues(trainer::Device& device, trainer::Queue& queue,
                                      const trainer::Tensor& tensor) {
  return VisitDType(tensor.dtype, [&]<typename T>(T /*type*/) {
    std::vector<T> stored(static_cast<std::size_t>(tensor.num_elems()));
    device.CopyToHost(queue, tensor, stored.data());
    CKPT_CHECK(queue.Synchronize().ok());
    std::vector<double> values;
    values.reserve(stored.size());
    for (const T value : stored) {
      if constexpr (std::is_same_v<T, std::uint16_t>) {
        values.push_back(double{FromBf16Bits(value)});
      } else {
        values.push_back(static_cast<double>(value));
      }
    }
    return values;
  });
}

// Waits for the queue. REQUIRES: as many values as elements.
inline void WriteValues(trainer::Device& device, trainer::Queue& queue,
                        const std::vector<double>& values, const trainer::Tensor& tensor) {
  CKPT_CHECK(values.size() == static_cast<std::size_t>(tensor.num_elems()));
  VisitDType(tensor.dtype, [&]<typename T>(T /*type*/) {
    std::vector<T> stored;
    stored.reserve(values.size());
    for (const double value : values) {
      if constexpr (std::is_same_v<T, std::uint16_t>) {
        stored.push_back(ToBf16Bits(static_cast<float>(value)));
      } else {
        stored.push_back(static_cast<T>(value));
      }
    }
    device.CopyFromHost(queue, stored.data(), tensor);
    CKPT_CHECK(queue.Synchronize().ok());
  });
}

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_TESTING_DEVICE_VALUES_H_

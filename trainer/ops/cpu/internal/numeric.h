// Number types of the CPU's ops: in memory, in computations and in sums.
#ifndef CKPT_TRAINER_OPS_CPU_INTERNAL_NUMERIC_H_
#define CKPT_TRAINER_OPS_CPU_INTERNAL_NUMERIC_H_

#include <bit>
#include <cstdint>

#include "core/base/check.h"
#include "core/tensor/dtype.h"
#include "trainer/ops/fixed_point.h"

namespace ckpt::trainer {

// A bfloat16 in memory. Computations use float.
struct Bf16 {
  std::uint16_t bits;
};

// The type in which elements of T are computed. Statistics of such elements have it too.
template <typename T>
struct RealOf {
  using type = float;
};
template <>
struct RealOf<double> {
  using type = double;
};
template <typename T>
using Real = typename RealOf<T>::type;

inline float Load(float value) { return value; }
inline double Load(double value) { return value; }
inline float Load(Bf16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

// Rounds once to the element type, to nearest even. It selects a NaN without a branch, so that a
// loop of it vectorises.
template <typename T>
T Store(Real<T> value) {
  return value;
}
template <>
inline Bf16 Store<Bf16>(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  const std::uint32_t quiet_nan = (bits >> 16) | 0x40U;
  const bool is_nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
  return {static_cast<std::uint16_t>(is_nan ? quiet_nan : rounded)};
}

// to += value, for gradients of every dtype. Fixed-point sums wrap, which is defined behaviour;
// fixed_point.h says what that means for invalid contributions.
inline void AccumulateInto(float& to, double value) { to += static_cast<float>(value); }
inline void AccumulateInto(double& to, double value) { to += value; }
inline void AccumulateInto(Bf16& to, double value) {
  to = Store<Bf16>(Load(to) + static_cast<float>(value));
}
inline void AccumulateInto(std::int64_t& to, double value) {
  to = static_cast<std::int64_t>(static_cast<std::uint64_t>(to) +
                                 static_cast<std::uint64_t>(ToFixedPoint(value)));
}

template <typename T>
struct TypeTag {
  using type = T;
};

template <typename T>
inline constexpr DType kDTypeOf = DType::kFloat32;
template <>
inline constexpr DType kDTypeOf<double> = DType::kFloat64;
template <>
inline constexpr DType kDTypeOf<Bf16> = DType::kBfloat16;
template <>
inline constexpr DType kDTypeOf<std::int64_t> = DType::kInt64;
template <>
inline constexpr DType kDTypeOf<std::int32_t> = DType::kInt32;

// The dtype of the statistics of activations of `dtype`.
[[nodiscard]] inline DType StatisticsDType(DType dtype) {
  return dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

// Calls `body(TypeTag<T>{})`, where T is the element type of a compute dtype:
//
//   DispatchCompute(x.dtype, [&](auto tag) {
//     using T = typename decltype(tag)::type;
//     Kernel(x.as<const T>(), …);
//   });
template <typename Body>
void DispatchCompute(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::kFloat32:
      return body(TypeTag<float>{});
    case DType::kFloat64:
      return body(TypeTag<double>{});
    case DType::kBfloat16:
      return body(TypeTag<Bf16>{});
    default:
      CKPT_CHECK(false && "not a compute dtype");
  }
}

// The same for the dtypes of gradients.
template <typename Body>
void DispatchGradient(DType dtype, Body&& body) {
  if (dtype == DType::kInt64) return body(TypeTag<std::int64_t>{});
  DispatchCompute(dtype, body);
}

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPS_CPU_INTERNAL_NUMERIC_H_

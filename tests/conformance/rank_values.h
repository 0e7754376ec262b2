// Values of ranks for tests of collectives, and what their sums are by the documented order.
#ifndef CKPT_TESTS_CONFORMANCE_RANK_VALUES_H_
#define CKPT_TESTS_CONFORMANCE_RANK_VALUES_H_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include "core/tensor/cast.h"
#include "core/tensor/dtype.h"
#include "trainer/device/tensor.h"

namespace ckpt::trainer {

// The types that are summed. Bf16 holds bits, so that nothing but the tests' own arithmetic rounds.
struct Bf16 {
  std::uint16_t bits = 0;
};
template <typename T>
constexpr DType kDTypeOf = DType::kUint8;
template <>
inline constexpr DType kDTypeOf<Bf16> = DType::kBfloat16;
template <>
inline constexpr DType kDTypeOf<float> = DType::kFloat32;
template <>
inline constexpr DType kDTypeOf<double> = DType::kFloat64;
template <>
inline constexpr DType kDTypeOf<std::int32_t> = DType::kInt32;
template <>
inline constexpr DType kDTypeOf<std::int64_t> = DType::kInt64;

// Element `i` of rank `rank`: floats of many magnitudes and both signs, whose sums depend on the
// order.
template <typename T>
T ValueAt(int rank, std::int64_t i) {
  std::uint64_t hash = (static_cast<std::uint64_t>(rank) << 40) + static_cast<std::uint64_t>(i) + 1;
  for (int round = 0; round < 2; ++round) hash = (hash ^ (hash >> 29)) * 0xBF58476D1CE4E5B9U;
  const auto integer = static_cast<std::int64_t>(hash >> 40) - (1 << 23);
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(integer);
  } else {
    const double real = std::ldexp(static_cast<double>(integer), static_cast<int>(hash % 24) - 30);
    if constexpr (std::is_same_v<T, Bf16>) {
      return {ToBf16Bits(static_cast<float>(real))};
    } else {
      return static_cast<T>(real);
    }
  }
}

template <typename T>
std::vector<T> ValuesOf(int rank, std::int64_t count) {
  std::vector<T> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(ValueAt<T>(rank, i));
  return values;
}

// The documented tree over one element of ranks [lo, hi), written without the library's.
template <typename T, typename ValueOfRank>
T TreeSum(int lo, int hi, const ValueOfRank& value) {
  if (hi - lo == 1) return value(lo);
  int left = 1;
  while (2 * left < hi - lo) left *= 2;
  return TreeSum<T>(lo, lo + left, value) + TreeSum<T>(lo + left, hi, value);
}

template <typename T>
T SumAt(int num_ranks, std::int64_t i) {
  if constexpr (std::is_same_v<T, Bf16>) {
    return {ToBf16Bits(TreeSum<float>(
        0, num_ranks, [i](int rank) { return FromBf16Bits(ValueAt<Bf16>(rank, i).bits); }))};
  } else {
    return TreeSum<T>(0, num_ranks, [i](int rank) { return ValueAt<T>(rank, i); });
  }
}

template <typename T>
Tensor ViewOf(std::vector<T>& values) {
  static std::byte nothing{};  // an empty vector's data may be null, which means absent
  return {values.empty() ? static_cast<void*>(&nothing) : values.data(),
          kDTypeOf<T>,
          {static_cast<std::int64_t>(values.size())}};
}

template <typename T>
void ExpectSameBits(const std::vector<T>& actual, const std::vector<T>& expected,
                    const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(std::memcmp(&actual[i], &expected[i], sizeof(T)), 0)
        << what << " of " << DTypeName(kDTypeOf<T>) << ": element " << i << " of " << actual.size()
        << ": " << ::testing::PrintToString(actual[i]) << " instead of "
        << ::testing::PrintToString(expected[i]);
  }
}

}  // namespace ckpt::trainer

#endif  // CKPT_TESTS_CONFORMANCE_RANK_VALUES_H_

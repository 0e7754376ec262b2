// Integer arithmetic on numbers that came from a file: returns false instead of wrapping.
#ifndef CKPT_CORE_BASE_CHECKED_MATH_H_
#define CKPT_CORE_BASE_CHECKED_MATH_H_

#include <concepts>
#include <cstdint>

namespace ckpt {

// *out = a + b, or false if it does not fit T.
template <std::integral T>
[[nodiscard]] constexpr bool CheckedAdd(T a, T b, T* out) {
  return !__builtin_add_overflow(a, b, out);
}

// *out = a * b, or false if it does not fit T.
template <std::integral T>
[[nodiscard]] constexpr bool CheckedMul(T a, T b, T* out) {
  return !__builtin_mul_overflow(a, b, out);
}

// Whether [offset, offset + length) lies within [0, size). Cannot wrap.
[[nodiscard]] constexpr bool RangeFits(std::uint64_t offset, std::uint64_t length,
                                       std::uint64_t size) {
  return length <= size && offset <= size - length;
}

// ceil(a / b). REQUIRES: b > 0.
[[nodiscard]] constexpr std::uint64_t CeilDiv(std::uint64_t a, std::uint64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

// The smallest multiple of `alignment` that is not less than `a`. REQUIRES: a >= 0, alignment > 0,
// and T holds the result.
template <std::integral T>
[[nodiscard]] constexpr T AlignUp(T a, T alignment) {
  const T excess = a % alignment;
  return excess == 0 ? a : a + (alignment - excess);
}

}  // namespace ckpt

#endif  // CKPT_CORE_BASE_CHECKED_MATH_H_

// Reads and writes fixed-width numbers in bytes, without aliasing or alignment assumptions.
#ifndef CKPT_CORE_BASE_ENDIAN_H_
#define CKPT_CORE_BASE_ENDIAN_H_

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstring>

#include "core/base/bytes.h"

namespace ckpt {

static_assert(std::endian::native == std::endian::little, "little-endian hosts only");

// REQUIRES: `at` points at sizeof(T) readable bytes.
template <typename T>
[[nodiscard]] T LoadLe(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

template <std::integral T>
[[nodiscard]] T LoadBe(const std::byte* at) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    value = static_cast<T>((value << 8) | static_cast<T>(at[i]));
  }
  return value;
}

template <typename T>
void StoreLe(T value, std::byte* at) {
  std::memcpy(at, &value, sizeof(T));
}

template <typename T>
void AppendLe(T value, Bytes& out) {
  std::array<std::byte, sizeof(T)> raw = {};
  StoreLe(value, raw.data());
  out.insert(out.end(), raw.begin(), raw.end());
}

}  // namespace ckpt

#endif  // CKPT_CORE_BASE_ENDIAN_H_

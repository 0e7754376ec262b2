#include "formats/hdf5/internal/encode_type.h"

#include <string_view>

#include "core/base/endian.h"

namespace ckpt::hdf5 {
namespace {

// Version 1 in the upper half, the class in the lower one; then 24 bits and the size.
Bytes Head(std::uint8_t number, std::uint32_t bits, std::uint64_t size_bytes) {
  Bytes head;
  AppendLe<std::uint32_t>((bits << 8) | 0x10U | number, head);
  AppendLe(static_cast<std::uint32_t>(size_bytes), head);
  return head;
}

Bytes Integer(std::uint64_t size_bytes, bool is_signed) {
  Bytes type = Head(0, is_signed ? 0x08 : 0, size_bytes);
  AppendLe<std::uint16_t>(0, type);
  AppendLe(static_cast<std::uint16_t>(8 * size_bytes), type);
  return type;
}

Bytes Float(std::uint64_t size_bytes, std::uint8_t mantissa_bits, std::uint8_t exponent_bits) {
  constexpr std::uint32_t kHiddenBit = 0x20;
  const auto bits = static_cast<std::uint32_t>(8 * size_bytes);
  Bytes type = Head(1, kHiddenBit | ((bits - 1) << 8), size_bytes);
  AppendLe<std::uint16_t>(0, type);
  AppendLe(static_cast<std::uint16_t>(bits), type);
  AppendLe(mantissa_bits, type);  // where the exponent begins
  AppendLe(exponent_bits, type);
  AppendLe<std::uint8_t>(0, type);
  AppendLe(mantissa_bits, type);
  AppendLe((std::uint32_t{1} << (exponent_bits - 1)) - 1, type);
  return type;
}

void AppendName(std::string_view name, Bytes& type) {
  Append(name, type);
  type.resize(type.size() + 8 - name.size() % 8);  // ends with NUL, padded to 8
}

Bytes Bool() {
  Bytes type = Head(8, 2, 1);
  Append(Integer(1, true), type);
  AppendName("FALSE", type);
  AppendName("TRUE", type);
  AppendLe<std::uint8_t>(0, type);
  AppendLe<std::uint8_t>(1, type);
  return type;
}

Bytes Complex(const Bytes& part, std::uint64_t part_bytes) {
  Bytes type = Head(6, 2, 2 * part_bytes);
  for (const std::string_view name : {"r", "i"}) {
    AppendName(name, type);
    AppendLe(static_cast<std::uint32_t>(name == "r" ? 0 : part_bytes), type);
    type.resize(type.size() + 28);  // no dims
    Append(part, type);
  }
  return type;
}

}  // namespace

Bytes EncodeType(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return Bool();
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:
      return Integer(ElementBytes(dtype), true);
    case DType::kFloat16:
      return Float(2, 10, 5);
    case DType::kFloat32:
      return Float(4, 23, 8);
    case DType::kFloat64:
      return Float(8, 52, 11);
    case DType::kComplex64:
      return Complex(Float(4, 23, 8), 4);
    case DType::kComplex128:
      return Complex(Float(8, 52, 11), 8);
    default:
      return Integer(ElementBytes(dtype), false);
  }
}

Bytes EncodeTextType(std::uint32_t num_bytes) {
  constexpr std::uint32_t kPaddedWithNul = 0x01;
  constexpr std::uint32_t kUtf8 = 0x10;
  return Head(3, kPaddedWithNul | kUtf8, num_bytes);
}

Bytes EncodeLongTextType() {
  constexpr std::uint32_t kText = 0x01;
  constexpr std::uint32_t kUtf8 = 0x100;
  Bytes type = Head(9, kText | kUtf8, 16);
  Append(Integer(1, false), type);
  return type;
}

}  // namespace ckpt::hdf5

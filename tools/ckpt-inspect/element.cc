#include "tools/ckpt-inspect/element.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include "core/base/endian.h"
#include "core/json/json_writer.h"
#include "core/tensor/cast.h"

namespace ckpt::inspect {
namespace {

// A small floating-point type with a sign bit on top. Sources: the OCP 8-bit and MX specifications;
// the "fnuz" variants are those of ONNX.
struct MiniFloat {
  int exponent_bits;
  int mantissa_bits;
  int bias;
};

constexpr MiniFloat kE4m3fn{4, 3, 7};
constexpr MiniFloat kE4m3fnuz{4, 3, 8};
constexpr MiniFloat kE5m2{5, 2, 15};
constexpr MiniFloat kE5m2fnuz{5, 2, 16};
constexpr MiniFloat kE2m1{2, 1, 1};

constexpr long double kNan = std::numeric_limits<long double>::quiet_NaN();
constexpr long double kInf = std::numeric_limits<long double>::infinity();

// The finite value of the bits. Callers handle the codes for NaN and infinity.
long double Finite(MiniFloat type, unsigned bits) {
  const unsigned mantissa = bits & ((1U << type.mantissa_bits) - 1);
  const unsigned exponent = bits >> type.mantissa_bits & ((1U << type.exponent_bits) - 1);
  const bool is_negative = (bits >> (type.mantissa_bits + type.exponent_bits) & 1) != 0;
  const bool is_subnormal = exponent == 0;
  const unsigned significand = is_subnormal ? mantissa : mantissa | 1U << type.mantissa_bits;
  const int power =
      (is_subnormal ? 1 : static_cast<int>(exponent)) - type.bias - type.mantissa_bits;
  const long double magnitude = std::ldexp(static_cast<long double>(significand), power);
  return is_negative ? -magnitude : magnitude;
}

long double DecodeFloat8(DType dtype, unsigned bits) {
  const unsigned magnitude = bits & 0x7F;
  switch (dtype) {
    case DType::kFloat8E4m3fn:
      return magnitude == 0x7F ? kNan : Finite(kE4m3fn, bits);
    case DType::kFloat8E4m3fnuz:
      return bits == 0x80 ? kNan : Finite(kE4m3fnuz, bits);
    case DType::kFloat8E5m2fnuz:
      return bits == 0x80 ? kNan : Finite(kE5m2fnuz, bits);
    case DType::kFloat8E8m0fnu:
      return bits == 0xFF ? kNan : std::ldexp(1.0L, static_cast<int>(bits) - 127);
    default:
      break;
  }
  // float8_e5m2 keeps the special codes of IEEE 754.
  if (magnitude > 0x7C) return kNan;
  if (magnitude == 0x7C) return bits == 0x7C ? kInf : -kInf;
  return Finite(kE5m2, bits);
}

long double DecodeReal(DType dtype, const std::byte* at) {
  switch (dtype) {
    case DType::kBool:
      return LoadLe<std::uint8_t>(at) != 0 ? 1.0L : 0.0L;
    case DType::kUint8:
      return LoadLe<std::uint8_t>(at);
    case DType::kUint16:
      return LoadLe<std::uint16_t>(at);
    case DType::kUint32:
      return LoadLe<std::uint32_t>(at);
    case DType::kUint64:
      return static_cast<long double>(LoadLe<std::uint64_t>(at));
    case DType::kInt8:
      return LoadLe<std::int8_t>(at);
    case DType::kInt16:
      return LoadLe<std::int16_t>(at);
    case DType::kInt32:
      return LoadLe<std::int32_t>(at);
    case DType::kInt64:
      return static_cast<long double>(LoadLe<std::int64_t>(at));
    case DType::kFloat16:
    case DType::kComplex32:
      return FromFp16Bits(LoadLe<std::uint16_t>(at));
    case DType::kBfloat16:
    case DType::kBcomplex32:
      return FromBf16Bits(LoadLe<std::uint16_t>(at));
    case DType::kFloat32:
    case DType::kComplex64:
      return LoadLe<float>(at);
    case DType::kFloat64:
    case DType::kComplex128:
      return LoadLe<double>(at);
    case DType::kFloat8E4m3fn:
    case DType::kFloat8E5m2:
    case DType::kFloat8E4m3fnuz:
    case DType::kFloat8E5m2fnuz:
    case DType::kFloat8E8m0fnu:
      return DecodeFloat8(dtype, LoadLe<std::uint8_t>(at));
    case DType::kFloat4E2m1fnX2:
      return Finite(kE2m1, LoadLe<std::uint8_t>(at) & 0xF);
  }
  return kNan;
}

}  // namespace

bool IsReal(DType dtype) {
  return dtype != DType::kComplex32 && dtype != DType::kBcomplex32 && dtype != DType::kComplex64 &&
         dtype != DType::kComplex128;
}

ElementParts DecodeElement(DType dtype, const std::byte* at) {
  ElementParts parts;
  parts.values[0] = DecodeReal(dtype, at);
  if (dtype == DType::kFloat4E2m1fnX2) {
    parts.count = 2;
    parts.values[1] = Finite(kE2m1, LoadLe<std::uint8_t>(at) >> 4U);
  } else if (!IsReal(dtype)) {
    parts.count = 2;
    parts.values[1] = DecodeReal(dtype, at + SwapUnitBytes(dtype));
  }
  return parts;
}

void AppendNumber(DType dtype, long double value, std::string& out) {
  if (dtype == DType::kBool) {
    out += value != 0 ? "true" : "false";
  } else if (IsInteger(dtype)) {
    out += dtype == DType::kUint64 ? std::to_string(static_cast<std::uint64_t>(value))
                                   : std::to_string(static_cast<std::int64_t>(value));
  } else if (std::isfinite(value)) {
    out += JsonNumber(static_cast<double>(value));
  } else {
    out += std::isnan(value) ? R"({"$float": "nan"})"
           : value > 0       ? R"({"$float": "inf"})"
                             : R"({"$float": "-inf"})";
  }
}

void AppendElement(DType dtype, const std::byte* at, std::string& out) {
  const ElementParts parts = DecodeElement(dtype, at);
  if (parts.count == 1) {
    AppendNumber(dtype, parts.values[0], out);
    return;
  }
  out += '[';
  AppendNumber(dtype, parts.values[0], out);
  out += ", ";
  AppendNumber(dtype, parts.values[1], out);
  out += ']';
}

}  // namespace ckpt::inspect

// Element types, with torch's names.
#ifndef CKPT_CORE_TENSOR_DTYPE_H_
#define CKPT_CORE_TENSOR_DTYPE_H_

#include <cstdint>
#include <optional>
#include <string_view>

namespace ckpt {

// The numbers are never stored; the names are the contract.
enum class DType : std::uint8_t {
  kBool,
  kUint8,
  kUint16,
  kUint32,
  kUint64,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kFloat16,
  kBfloat16,
  kFloat32,
  kFloat64,
  kFloat8E4m3fn,
  kFloat8E5m2,
  kFloat8E4m3fnuz,
  kFloat8E5m2fnuz,
  kFloat8E8m0fnu,
  kFloat4E2m1fnX2,  // two 4-bit values in a byte; shapes count bytes, as in torch
  kComplex32,
  kBcomplex32,  // two of bfloat16
  kComplex64,
  kComplex128,
};

inline constexpr int kNumDTypes = static_cast<int>(DType::kComplex128) + 1;

// "bfloat16", "float8_e4m3fn", …
[[nodiscard]] std::string_view DTypeName(DType dtype);
[[nodiscard]] std::optional<DType> ParseDType(std::string_view torch_name);

// Bytes of one element as shapes count elements.
[[nodiscard]] std::uint64_t ElementBytes(DType dtype);

// Bytes of the unit that is reversed for the other byte order: a component of a complex number,
// else the element.
[[nodiscard]] std::uint64_t SwapUnitBytes(DType dtype);

// Signed and unsigned integers, but not bool.
[[nodiscard]] bool IsInteger(DType dtype);

// float16, bfloat16, float32, float64: the types that `--dtype` converts between.
[[nodiscard]] bool IsCastable(DType dtype);

}  // namespace ckpt

#endif  // CKPT_CORE_TENSOR_DTYPE_H_

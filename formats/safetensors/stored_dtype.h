// The element types of the safetensors format, under its own names and in its own order.
#ifndef CKPT_FORMATS_SAFETENSORS_STORED_DTYPE_H_
#define CKPT_FORMATS_SAFETENSORS_STORED_DTYPE_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/base/result.h"
#include "core/tensor/dtype.h"
#include "core/tensor/shape.h"

namespace ckpt::safetensors {

// In the reference library's order, by which its writer sorts tensors (descending).
enum class StoredDType : std::uint8_t {
  kBool,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kI16,
  kU16,
  kF16,
  kBf16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};

inline constexpr int kNumStoredDTypes = static_cast<int>(StoredDType::kU64) + 1;

// "BF16", "F8_E4M3", …
[[nodiscard]] std::string_view StoredDTypeName(StoredDType dtype);
[[nodiscard]] std::optional<StoredDType> ParseStoredDType(std::string_view name);

// Width of one element as header shapes count them: 4, 6, 8, …
[[nodiscard]] std::uint64_t StoredBits(StoredDType dtype);

// Nothing for the six-bit types, which torch lacks.
[[nodiscard]] std::optional<DType> ToDType(StoredDType dtype);
// Nothing for the types that the format cannot hold: complex32, bcomplex32, complex128.
[[nodiscard]] std::optional<StoredDType> FromDType(DType dtype);

// A header's shape as torch counts it, and back: `F4` headers count four-bit elements, torch bytes
// of two.
//
// Errors: kUnsupported (no last dim that holds whole bytes).
Result<Dims> ToTorchShape(StoredDType dtype, const Dims& stored_shape);
// Errors: kResource (the last dim overflows), kUnsupported (a 0-d `F4` tensor).
Result<Dims> ToStoredShape(StoredDType dtype, const Dims& torch_shape);

}  // namespace ckpt::safetensors

#endif  // CKPT_FORMATS_SAFETENSORS_STORED_DTYPE_H_

#include "formats/safetensors/stored_dtype.h"

#include <array>

#include "core/base/checked_math.h"

namespace ckpt::safetensors {
namespace {

struct StoredDTypeInfo {
  std::string_view name;
  std::uint64_t bits;
  std::optional<DType> dtype;
};

constexpr std::array<StoredDTypeInfo, kNumStoredDTypes> kInfo = {{
    {"BOOL", 8, DType::kBool},
    {"F4", 4, DType::kFloat4E2m1fnX2},
    {"F6_E2M3", 6, std::nullopt},
    {"F6_E3M2", 6, std::nullopt},
    {"U8", 8, DType::kUint8},
    {"I8", 8, DType::kInt8},
    {"F8_E5M2", 8, DType::kFloat8E5m2},
    {"F8_E4M3", 8, DType::kFloat8E4m3fn},
    {"F8_E8M0", 8, DType::kFloat8E8m0fnu},
    {"F8_E4M3FNUZ", 8, DType::kFloat8E4m3fnuz},
    {"F8_E5M2FNUZ", 8, DType::kFloat8E5m2fnuz},
    {"I16", 16, DType::kInt16},
    {"U16", 16, DType::kUint16},
    {"F16", 16, DType::kFloat16},
    {"BF16", 16, DType::kBfloat16},
    {"I32", 32, DType::kInt32},
    {"U32", 32, DType::kUint32},
    {"F32", 32, DType::kFloat32},
    {"C64", 64, DType::kComplex64},
    {"F64", 64, DType::kFloat64},
    {"I64", 64, DType::kInt64},
    {"U64", 64, DType::kUint64},
}};

const StoredDTypeInfo& InfoOf(StoredDType dtype) { return kInfo[static_cast<std::size_t>(dtype)]; }

}  // namespace

std::string_view StoredDTypeName(StoredDType dtype) { return InfoOf(dtype).name; }

std::optional<StoredDType> ParseStoredDType(std::string_view name) {
  for (int i = 0; i < kNumStoredDTypes; ++i) {
    const auto dtype = static_cast<StoredDType>(i);
    if (StoredDTypeName(dtype) == name) return dtype;
  }
  return std::nullopt;
}

std::uint64_t StoredBits(StoredDType dtype) { return InfoOf(dtype).bits; }

std::optional<DType> ToDType(StoredDType dtype) { return InfoOf(dtype).dtype; }

std::optional<StoredDType> FromDType(DType dtype) {
  for (int i = 0; i < kNumStoredDTypes; ++i) {
    const auto stored = static_cast<StoredDType>(i);
    if (ToDType(stored) == dtype) return stored;
  }
  return std::nullopt;
}

Result<Dims> ToTorchShape(StoredDType dtype, const Dims& stored_shape) {
  if (dtype != StoredDType::kF4) return stored_shape;
  if (stored_shape.empty() || stored_shape.back() % 2 != 0) {
    return Error(ErrorKind::kUnsupported, "F4 tensor whose rows are not whole bytes")
        .Expected("an even last dim")
        .Actual(FormatDims(stored_shape));
  }
  Dims shape = stored_shape;
  shape.back() /= 2;
  return shape;
}

Result<Dims> ToStoredShape(StoredDType dtype, const Dims& torch_shape) {
  if (dtype != StoredDType::kF4) return torch_shape;
  if (torch_shape.empty()) {
    return Error(ErrorKind::kUnsupported, "safetensors has no F4 tensor without dims");
  }
  Dims shape = torch_shape;
  if (!CheckedMul<std::int64_t>(shape.back(), 2, &shape.back())) {
    return Error(ErrorKind::kResource, "size overflows 63 bits").Actual(FormatDims(torch_shape));
  }
  return shape;
}

}  // namespace ckpt::safetensors

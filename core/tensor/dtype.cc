#include "core/tensor/dtype.h"

#include <array>

namespace ckpt {
namespace {

struct DTypeInfo {
  std::string_view name;
  std::uint64_t element_bytes;
  std::uint64_t swap_unit_bytes;
};

constexpr std::array<DTypeInfo, kNumDTypes> kInfo = {{
    {"bool", 1, 1},
    {"uint8", 1, 1},
    {"uint16", 2, 2},
    {"uint32", 4, 4},
    {"uint64", 8, 8},
    {"int8", 1, 1},
    {"int16", 2, 2},
    {"int32", 4, 4},
    {"int64", 8, 8},
    {"float16", 2, 2},
    {"bfloat16", 2, 2},
    {"float32", 4, 4},
    {"float64", 8, 8},
    {"float8_e4m3fn", 1, 1},
    {"float8_e5m2", 1, 1},
    {"float8_e4m3fnuz", 1, 1},
    {"float8_e5m2fnuz", 1, 1},
    {"float8_e8m0fnu", 1, 1},
    {"float4_e2m1fn_x2", 1, 1},
    {"complex32", 4, 2},
    {"bcomplex32", 4, 2},
    {"complex64", 8, 4},
    {"complex128", 16, 8},
}};

const DTypeInfo& InfoOf(DType dtype) { return kInfo[static_cast<std::size_t>(dtype)]; }

}  // namespace

std::string_view DTypeName(DType dtype) { return InfoOf(dtype).name; }

std::optional<DType> ParseDType(std::string_view torch_name) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (DTypeName(dtype) == torch_name) return dtype;
  }
  return std::nullopt;
}

std::uint64_t ElementBytes(DType dtype) { return InfoOf(dtype).element_bytes; }

std::uint64_t SwapUnitBytes(DType dtype) { return InfoOf(dtype).swap_unit_bytes; }

bool IsInteger(DType dtype) { return dtype >= DType::kUint8 && dtype <= DType::kInt64; }

bool IsCastable(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBfloat16 || dtype == DType::kFloat32 ||
         dtype == DType::kFloat64;
}

}  // namespace ckpt

#include "formats/torch_save/internal/torch_dtype.h"

namespace ckpt::torch_save {

std::string_view StorageClassOf(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return "BoolStorage";
    case DType::kUint8:
      return "ByteStorage";
    case DType::kInt8:
      return "CharStorage";
    case DType::kInt16:
      return "ShortStorage";
    case DType::kInt32:
      return "IntStorage";
    case DType::kInt64:
      return "LongStorage";
    case DType::kFloat16:
      return "HalfStorage";
    case DType::kBfloat16:
      return "BFloat16Storage";
    case DType::kFloat32:
      return "FloatStorage";
    case DType::kFloat64:
      return "DoubleStorage";
    case DType::kComplex64:
      return "ComplexFloatStorage";
    case DType::kComplex128:
      return "ComplexDoubleStorage";
    case DType::kUint16:
    case DType::kUint32:
    case DType::kUint64:
    case DType::kFloat8E4m3fn:
    case DType::kFloat8E5m2:
    case DType::kFloat8E4m3fnuz:
    case DType::kFloat8E5m2fnuz:
    case DType::kFloat8E8m0fnu:
    case DType::kFloat4E2m1fnX2:
    case DType::kComplex32:
    case DType::kBcomplex32:
      return {};
  }
  return {};
}

std::optional<DType> DTypeOfStorageClass(std::string_view class_name) {
  if (class_name.empty()) return std::nullopt;
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (StorageClassOf(dtype) == class_name) return dtype;
  }
  return std::nullopt;
}

}  // namespace ckpt::torch_save

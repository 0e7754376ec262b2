#include "converters/verbs/internal/dtype_policy.h"

#include "core/base/quote.h"

namespace ckpt {

Result<DtypePolicy> DtypePolicy::Make(std::optional<DType> dtype, const std::string& keep_fp32) {
  if (dtype && !IsCastable(*dtype)) {
    return Error(ErrorKind::kUsage, "no conversion to this element type")
        .Actual(DTypeName(*dtype))
        .Expected("float16, bfloat16, float32 or float64");
  }
  try {
    return DtypePolicy(dtype, std::regex(keep_fp32.empty() ? kDefaultKeepFp32 : keep_fp32));
  } catch (const std::regex_error& error) {
    return Error(ErrorKind::kUsage, "not a regular expression: " + std::string(error.what()))
        .Actual(Quote(keep_fp32));
  }
}

bool DtypePolicy::Keeps(const std::string& key, DType stored) const {
  return stored == DType::kFloat32 && std::regex_search(key, keep_fp32_);
}

bool DtypePolicy::CannotCast(DType stored) const {
  const bool is_number = stored != DType::kBool && !IsInteger(stored);
  return dtype_ && is_number && !IsCastable(stored);
}

DType DtypePolicy::For(const std::string& key, DType stored) const {
  if (!dtype_ || !IsCastable(stored)) return stored;
  return Keeps(key, stored) ? stored : *dtype_;
}

}  // namespace ckpt

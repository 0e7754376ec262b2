// Which element type each tensor of a conversion gets.
#ifndef CKPT_CONVERTERS_VERBS_INTERNAL_DTYPE_POLICY_H_
#define CKPT_CONVERTERS_VERBS_INTERNAL_DTYPE_POLICY_H_

#include <cstddef>
#include <optional>
#include <regex>
#include <string>
#include <utility>

#include "core/base/result.h"
#include "core/tensor/dtype.h"

namespace ckpt {

// Floating-point tensors that training code keeps in float32 whatever the model's precision:
// routing corrections decide by differences that bfloat16 does not hold, and other values are
// computed from frequencies and decays.
inline constexpr char kDefaultKeepFp32[] =
    "e_score_correction_bias|expert_bias|A_log|dt_bias|inv_freq";

class DtypePolicy {
 public:
  static constexpr std::size_t kMaxKeyBytes = 2048;  // that a regular expression of `Make` is for

  // `dtype`: nothing keeps every tensor's own. `keep_fp32`: a regular expression searched in target
  // keys; a float32 tensor that matches stays float32; empty means kDefaultKeepFp32.
  // Errors: kUsage (not a regular expression, not a type that casts exist for).
  static Result<DtypePolicy> Make(std::optional<DType> dtype, const std::string& keep_fp32);

  // Whether the regular expression keeps a tensor as it is.
  [[nodiscard]] bool Keeps(const std::string& key, DType stored) const;
  // Whether a dtype was asked for and this one stays, although it is not of integers.
  [[nodiscard]] bool CannotCast(DType stored) const;
  [[nodiscard]] DType For(const std::string& key, DType stored) const;

 private:
  DtypePolicy(std::optional<DType> dtype, std::regex keep_fp32)
      : dtype_(dtype), keep_fp32_(std::move(keep_fp32)) {}

  std::optional<DType> dtype_;
  std::regex keep_fp32_;
};

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_VERBS_INTERNAL_DTYPE_POLICY_H_

#include "core/training/weight_decay.h"

namespace ckpt {

bool IsQueryKeyNorm(std::string_view name) {
  return name.find("q_layernorm.") != name.npos || name.find("k_layernorm.") != name.npos;
}

bool DecaysQueryKeyNorms(const std::function<const layout::Value*(std::string_view name)>& find) {
  constexpr std::string_view kFlag = "apply_wd_to_qk_layernorm";
  const layout::Value* const flag = find(kFlag);
  if (flag != nullptr && flag->AsBool() != nullptr && *flag->AsBool()) return true;
  const layout::Value* const condition = find("no_weight_decay_cond_type");
  return condition != nullptr && condition->AsText() != nullptr && *condition->AsText() == kFlag;
}

bool Decays(std::string_view name, std::size_t num_dims, bool with_query_key_norms) {
  if (with_query_key_norms && IsQueryKeyNorm(name)) return true;
  return num_dims >= 2 && !name.ends_with(".bias");
}

}  // namespace ckpt

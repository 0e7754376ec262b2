#include "core/training/weight_decay.h"

namespace ckpt {

bool IsQueryKeyNorm(std::string_view name) {
  return name.find("q_layernorm.") != name.npos || name.find("k_layernorm.") != name.npos;
}

bool Decays(std::string_view name, std::size_t num_dims, bool with_query_key_norms) {
  if (with_query_key_norms && IsQueryKeyNorm(name)) return true;
  return num_dims >= 2 && !name.ends_with(".bias");
}

}  // namespace ckpt

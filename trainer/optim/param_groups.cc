#include "trainer/optim/param_groups.h"

#include <string_view>

namespace ckpt::trainer {

bool Decays(const ParamSpec& param) {
  const bool is_bias = std::string_view(param.name).ends_with(".bias");
  return param.shape.size() >= 2 && !is_bias;
}

std::vector<ParamGroup> GroupParams(std::span<const ParamSpec> params) {
  std::vector<ParamGroup> groups;
  for (const bool is_expert : {false, true}) {
    for (const bool decays : {true, false}) {
      ParamGroup group;
      group.wd_mult = decays ? 1 : 0;
      group.is_expert_parallel = is_expert;
      for (std::size_t p = 0; p < params.size(); ++p) {
        const bool belongs = (params[p].param_class == ParamClass::kExpert) == is_expert &&
                             Decays(params[p]) == decays;
        if (params[p].trainable && belongs) group.indices.push_back(p);
      }
      if (!group.indices.empty()) groups.push_back(group);
    }
  }
  return groups;
}

}  // namespace ckpt::trainer

#include "trainer/optim/weight_decay.h"

#include <string_view>

namespace ckpt::trainer {

bool Decays(const ParamSpec& param) {
  const bool is_bias = std::string_view(param.name).ends_with(".bias");
  return param.shape.size() >= 2 && !is_bias;
}

}  // namespace ckpt::trainer

#include "trainer/optim/weight_decay.h"

#include "core/training/weight_decay.h"

namespace ckpt::trainer {

bool Decays(const OptimizerConfig& config, const ParamSpec& param) {
  if (config.decay_all) return true;
  return ckpt::Decays(param.name, param.shape.size(), config.decay_query_key_norms);
}

}  // namespace ckpt::trainer

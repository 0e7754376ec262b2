#include "trainer/step/trained_units.h"

#include <fnmatch.h>

#include <algorithm>
#include <string>

#include "trainer/model/model.h"

namespace ckpt::trainer {

std::vector<UnitSpec> ListTrainedUnits(const TrainConfig& config, int expert_rank) {
  std::vector<UnitSpec> units = ListUnits(config.model, expert_rank, config.mesh.expert_parallel);
  for (UnitSpec& unit : units) {
    for (ParamSpec& param : unit.params) {
      const auto names_it = [&](const std::string& glob) {
        return ::fnmatch(glob.c_str(), param.name.c_str(), 0) == 0;
      };
      if (std::ranges::any_of(config.frozen, names_it)) param.trainable = false;
    }
  }
  return units;
}

}  // namespace ckpt::trainer

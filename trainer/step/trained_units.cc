#include "trainer/step/trained_units.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "core/base/glob.h"
#include "trainer/model/model.h"

namespace ckpt::trainer {
namespace {

bool Names(const std::string& glob, const ParamSpec& param) {
  return MatchesGlob(glob, param.name);
}

}  // namespace

std::vector<UnitSpec> ListTrainedUnits(const TrainConfig& config, int expert_rank) {
  std::vector<UnitSpec> units = ListUnits(config.model, expert_rank, config.mesh.expert_parallel);
  for (UnitSpec& unit : units) {
    for (ParamSpec& param : unit.params) {
      const auto names_it = [&](const std::string& glob) { return Names(glob, param); };
      if (std::ranges::any_of(config.frozen, names_it)) param.trainable = false;
    }
  }
  return units;
}

Status CheckFrozen(const TrainConfig& config) {
  if (config.frozen.empty()) return OkStatus();
  const std::vector<UnitSpec> units = ListUnits(config.model, 0, 1);
  Status idle;
  for (const std::string& glob : config.frozen) {
    const bool matches = std::ranges::any_of(units, [&](const UnitSpec& unit) {
      return std::ranges::any_of(unit.params,
                                 [&](const ParamSpec& param) { return Names(glob, param); });
    });
    if (matches) continue;
    idle.Add(Error(ErrorKind::kUsage, "setting frozen has a pattern that no parameter matches")
                 .Expected("names such as " + units.back().params.back().name)
                 .Actual(glob));
  }
  if (!idle.ok()) return idle;
  const std::vector<UnitSpec> trained = ListTrainedUnits(config, 0);
  const bool trains = std::ranges::any_of(trained, [](const UnitSpec& unit) {
    return std::ranges::any_of(unit.params, &ParamSpec::trainable);
  });
  if (trains) return OkStatus();
  return Error(ErrorKind::kUsage, "setting frozen names every parameter: nothing is left to train")
      .Actual(fmt::format("{}", fmt::join(config.frozen, " ")));
}

}  // namespace ckpt::trainer

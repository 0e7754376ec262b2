#include "tools/ckpt-train/stored_settings.h"

#include <array>
#include <string>
#include <string_view>

#include "converters/config/run_settings.h"
#include "trainer/model/model_config.h"
#include "trainer/model/settings_reader.h"

namespace ckpt::train {
namespace {

// Settings that say what one invocation does, and nothing about the run it goes on with.
constexpr std::array<std::string_view, 8> kOfOneInvocation = {
    "save", "load", "exit_interval", "init", "finetune", "prove", "metrics", "tensorboard_dir"};

// Those of the settings that describe the model.
layout::Configuration OfTheModel(const layout::Configuration& settings) {
  trainer::SettingsReader reader(settings);
  trainer::ReadModelConfig(reader);
  layout::Configuration model;
  for (const auto& [name, value] : reader.effective()) {
    if (const auto given = settings.find(name); given != settings.end()) model.insert(*given);
  }
  return model;
}

}  // namespace

Result<layout::Configuration> StoredSettings(const TrainingState& state, bool finetune) {
  if (finetune) {
    CKPT_ASSIGN_OR_RETURN(const layout::Configuration model, StoredModelSettings(state.args));
    return OfTheModel(model);
  }
  CKPT_ASSIGN_OR_RETURN(layout::Configuration stored, RunSettings(state.args));
  for (const std::string_view name : kOfOneInvocation) stored.erase(std::string(name));
  return stored;
}

}  // namespace ckpt::train

#include "tools/ckpt-train/stored_settings.h"

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "converters/config/run_settings.h"
#include "converters/verbs/training_state.h"
#include "tools/ckpt-train/stored_run.h"
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

Result<std::optional<layout::Configuration>> StoredSettings(Storage& storage,
                                                            const CheckpointSettings& settings) {
  if (settings.load.empty()) return std::optional<layout::Configuration>();
  CKPT_ASSIGN_OR_RETURN(const std::vector<Path> candidates, ListCandidates(storage, settings.load));
  Status refused;
  for (const Path& candidate : candidates) {
    Result<TrainingState> state = OpenStoredRun(storage, candidate, settings.finetune);
    if (!state.ok()) {
      refused.Add(std::move(state).status().While(GoingOnFrom(candidate)));
      continue;
    }
    CKPT_ASSIGN_OR_RETURN(layout::Configuration stored, RunSettings(state->args));
    if (settings.finetune) return std::optional<layout::Configuration>(OfTheModel(stored));
    for (const std::string_view name : kOfOneInvocation) stored.erase(std::string(name));
    return std::optional<layout::Configuration>(std::move(stored));
  }
  if (!refused.ok()) return refused;
  return std::optional<layout::Configuration>();
}

}  // namespace ckpt::train

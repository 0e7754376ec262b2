#include "trainer/run/internal/stored_settings.h"

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "converters/config/model_settings.h"
#include "converters/config/run_settings.h"
#include "trainer/model/model_config.h"
#include "trainer/model/settings_reader.h"
#include "trainer/run/internal/fits_optimizer.h"

namespace ckpt::train {
namespace {

// Settings of one invocation. They say nothing about the run.
constexpr std::array<std::string_view, 11> kOfOneInvocation = {"save",
                                                               "load",
                                                               "exit_interval",
                                                               "init",
                                                               "finetune",
                                                               "restart_data",
                                                               "prove",
                                                               "metrics",
                                                               "tensorboard_dir",
                                                               "gpu_collectives",
                                                               "product_algorithms"};

// Settings that an optimizer's state says, under the names that its reader gives them.
constexpr std::array<std::string_view, 8> kOfTheOptimizer = {
    "optimizer",  "lr",       "weight_decay",           "adam_beta1",
    "adam_beta2", "adam_eps", "decoupled_weight_decay", "sgd_momentum"};

struct StoredModel {
  trainer::ModelConfig config;
  layout::Configuration effective = {};
  bool is_valid = false;
};

StoredModel ModelOf(const layout::Configuration& settings) {
  const layout::Configuration none_given;
  trainer::SettingsReader reader(settings, &none_given);
  StoredModel model = {.config = trainer::ReadModelConfig(reader)};
  model.effective = reader.effective();
  model.is_valid = reader.ok();
  return model;
}

// The part of the model that must stay. The rest balances experts, or matters only for new weights.
trainer::ModelConfig Lasting(trainer::ModelConfig config) {
  config.init_method_std = 0;
  if (!config.moe) return config;
  trainer::MoeConfig& moe = *config.moe;
  moe.bias_update_rate = 0;
  moe.aux = {};
  moe.capacity_factor.reset();
  moe.drop_policy = {};
  moe.pad_to_capacity = false;
  return config;
}

// Where groups and arguments differ, Megatron's schedule takes the rates of the groups. Those that
// the groups do not have in common are refused when the state is loaded.
void TakeFromGroups(const std::vector<ParamGroup>& groups, layout::Configuration& settings) {
  if (AllDecay(groups)) settings.emplace("decay_all", true);
  const bool say_rates = !groups.empty() && groups.front().max_lr > 0;
  if (!say_rates) return;
  settings.insert_or_assign("lr", groups.front().max_lr);
  settings.insert_or_assign("min_lr", groups.front().min_lr);
}

}  // namespace

Result<layout::Configuration> StoredSettings(const TrainingState& state, bool finetune) {
  // Megatron and this program store arguments of the model, all others a configuration beside it.
  const bool says_model = state.args.contains("num_layers");
  const bool says_run = state.args.contains("global_batch_size");
  if (finetune || !says_run) {
    CKPT_ASSIGN_OR_RETURN(layout::Configuration model, says_model
                                                           ? StoredModelSettings(state.args)
                                                           : ModelSettings(state.weights.config));
    model = trainer::SettingsOfModel(model);
    if (finetune) return model;
    for (const std::string_view name : kOfTheOptimizer) {
      const auto said = state.args.find(std::string(name));
      if (said != state.args.end()) model.insert_or_assign(said->first, said->second);
    }
    TakeFromGroups(state.run.groups, model);
    return model;
  }
  CKPT_ASSIGN_OR_RETURN(layout::Configuration stored, RunSettings(state.args));
  TakeFromGroups(state.run.groups, stored);
  for (const std::string_view name : kOfOneInvocation) stored.erase(std::string(name));
  return stored;
}

Status CheckKeepsModel(const layout::Configuration& stored, const layout::Configuration& given) {
  const StoredModel model = ModelOf(stored);
  Status changes;
  for (const auto& [name, value] : given) {
    const auto kept = model.effective.find(name);
    if (kept == model.effective.end()) continue;
    layout::Configuration changed = stored;
    changed.insert_or_assign(name, value);
    const StoredModel other = ModelOf(changed);
    if (other.is_valid && Lasting(other.config) == Lasting(model.config)) continue;
    changes.Add(Error(ErrorKind::kUsage,
                      fmt::format("setting {} changes the model of the stored run", name))
                    .Expected(layout::FormatValue(kept->second))
                    .Actual(layout::FormatValue(value)));
  }
  return std::move(changes).Hint(
      "a resumed run keeps its model: leave the setting out, or take only the weights with "
      "finetune=true");
}

}  // namespace ckpt::train

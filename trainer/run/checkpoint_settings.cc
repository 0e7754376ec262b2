#include "trainer/run/checkpoint_settings.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ckpt::train {

namespace {

// The formats that a run can be saved in, with their names as the setting's words; the usual one
// first. Tensors get the format's usual names; weights alone are not saved where checkpoints of runs
// are expected (Format::root).
std::vector<std::pair<std::string_view, const Format*>> SaveFormats() {
  std::vector<std::pair<std::string_view, const Format*>> words = {
      {UsualRunFormat().name, &UsualRunFormat()}};
  for (const Format* format : Formats()) {
    const bool holds_weights = format->plan_weights != nullptr && format->root == nullptr;
    const bool can_save =
        !format->usual_naming.empty() && (format->run != nullptr || holds_weights);
    if (can_save && format != &UsualRunFormat()) words.emplace_back(format->name, format);
  }
  return words;
}

}  // namespace

CheckpointSettings ReadCheckpointSettings(trainer::SettingsReader& reader) {
  CheckpointSettings settings;
  settings.save = reader.Text("save", "");
  settings.load = reader.Text("load", "");
  settings.save_format = reader.Word("save_format", SaveFormats());
  settings.save_interval = reader.Int("save_interval", 0);
  settings.async_save = reader.Flag("async_save", false);
  settings.keep_checkpoints = reader.Int("keep_checkpoints", 0);
  for (const char* choice : {"transformer_impl", "expert_names"}) {
    const std::string value = reader.Text(choice, "");
    if (!value.empty()) settings.naming[choice] = value;
  }
  settings.finetune = reader.Flag("finetune", false);
  settings.restart_data = reader.Flag("restart_data", false);
  // Weights alone cannot be proved: nothing resumes from them.
  settings.save_proof = reader.Flag("save_proof", true) && settings.save_format->run != nullptr;
  settings.prove = reader.Flag("prove", false);
  if (settings.prove && settings.finetune) {
    reader.Refuse("prove", "needs the whole state, and finetune takes only the weights");
  }
  return settings;
}

}  // namespace ckpt::train

#include "trainer/run/checkpoint_settings.h"

#include <string>

namespace ckpt::train {

std::string SaveFormatName(SaveFormat format) {
  switch (format) {
    case SaveFormat::kFsdpDtensor:
      return "fsdp_dtensor";
    case SaveFormat::kHf:
      return "hf";
  }
  return {};
}

CheckpointSettings ReadCheckpointSettings(trainer::SettingsReader& reader) {
  CheckpointSettings settings;
  settings.save = reader.Text("save", "");
  settings.load = reader.Text("load", "");
  settings.save_format = reader.Word<SaveFormat>(
      "save_format", {{"fsdp_dtensor", SaveFormat::kFsdpDtensor}, {"hf", SaveFormat::kHf}});
  settings.save_interval = reader.Int("save_interval", 0);
  settings.async_save = reader.Flag("async_save", false);
  settings.keep_checkpoints = reader.Int("keep_checkpoints", 0);
  for (const char* choice : {"transformer_impl", "expert_names"}) {
    const std::string value = reader.Text(choice, "");
    if (!value.empty()) settings.naming[choice] = value;
  }
  settings.finetune = reader.Flag("finetune", false);
  settings.restart_data = reader.Flag("restart_data", false);
  settings.save_proof = reader.Flag("save_proof", true);
  settings.prove = reader.Flag("prove", false);
  if (settings.prove && settings.finetune) {
    reader.Refuse("prove", "needs the whole state, and finetune takes only the weights");
  }
  return settings;
}

}  // namespace ckpt::train

#include "trainer/run/checkpoint_settings.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "formats/registry/stored_run.h"

namespace ckpt::train {

namespace {

// The formats that a run can be saved in, with their names as the setting's words; the usual one
// first. Tensors get the format's usual names; weights alone are not saved where checkpoints of
// runs are expected (Format::root).
std::vector<std::pair<std::string_view, const Format*>> SaveFormats() {
  std::vector<std::pair<std::string_view, const Format*>> words = {
      {UsualRunFormat().name, &UsualRunFormat()}};
  for (const Format* format : Formats()) {
    const bool holds_weights = format->plan_weights != nullptr && format->root == nullptr;
    const bool can_save =
        FormOfRun(*format).run != nullptr || (!format->usual_naming.empty() && holds_weights);
    if (can_save && format != &UsualRunFormat()) words.emplace_back(format->name, format);
  }
  return words;
}

// "torch_dist_generation": ckpt-convert has an option of the same name.
std::string SettingOf(const FormatOption& option) {
  std::string name(option.name);
  std::ranges::replace(name, '-', '_');
  return name;
}

std::vector<FormatOption> FormsOf(const Format& format) {
  return OptionsOfRun(format, FormOfRun(format));
}

// Says of every setting of a form what it means if it is absent, and refuses those that `format`
// does not have.
void RefuseOtherForms(const Format& format, trainer::SettingsReader& reader) {
  std::map<std::string, std::vector<std::string_view>> formats_with;
  for (const auto& [word, other] : SaveFormats()) {
    for (const FormatOption& option : FormsOf(*other)) {
      const std::string name = SettingOf(option);
      formats_with[name].push_back(word);
      reader.SetDefault(name, std::string(option.values.front()));
    }
  }
  for (const auto& [name, words] : formats_with) {
    if (std::ranges::find(words, format.name) != words.end()) continue;
    reader.RefuseForeign(name, fmt::format("is of save_format={}, not of {}",
                                           fmt::join(words, " or "), format.name));
  }
}

ChosenForms ReadForms(const Format& format, trainer::SettingsReader& reader) {
  RefuseOtherForms(format, reader);
  ChosenForms forms;
  for (const FormatOption& option : FormsOf(format)) {
    const std::string name = SettingOf(option);
    std::vector<std::pair<std::string_view, std::string_view>> words;
    std::vector<std::string_view> expected;
    for (const std::string_view value : option.values) {
      if (value == option.of_conversions) continue;
      words.emplace_back(value, value);
      expected.push_back(value);
    }
    if (!option.of_conversions.empty() && reader.TakeWord(name, option.of_conversions)) {
      reader.Refuse(name, "names a form that only conversions make",
                    fmt::format("{}", fmt::join(expected, ", ")),
                    fmt::format("ckpt-convert convert --to {} --{} {} makes it of what was saved",
                                format.name, option.name, option.of_conversions));
      continue;
    }
    if (const auto word = reader.OptionalWord(name, words)) forms[std::string(option.name)] = *word;
  }
  return forms;
}

}  // namespace

CheckpointSettings ReadCheckpointSettings(trainer::SettingsReader& reader) {
  CheckpointSettings settings;
  settings.save = reader.Text("save", "");
  settings.load = reader.Text("load", "");
  settings.save_format = reader.Word("save_format", SaveFormats());
  settings.forms = ReadForms(*settings.save_format, reader);
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
  settings.save_proof =
      reader.Flag("save_proof", true) && FormOfRun(*settings.save_format).run != nullptr;
  settings.prove = reader.Flag("prove", false);
  if (settings.prove && settings.finetune) {
    reader.Refuse("prove", "needs the whole state, and finetune takes only the weights");
  }
  return settings;
}

std::vector<std::string> FormSettings(const Format& format) {
  std::vector<std::string> names;
  for (const FormatOption& option : FormsOf(format)) names.push_back(SettingOf(option));
  return names;
}

}  // namespace ckpt::train

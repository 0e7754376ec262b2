#include "tools/ckpt-train/yaml_settings.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>
#include <yaml-cpp/yaml.h>

#include <fmt/format.h>

#include "core/yaml/event_limit.h"
#include "core/yaml/plain_number.h"

namespace ckpt::train {
namespace {

using layout::Value;

// Aliases make a small file large.
constexpr std::size_t kMaxValues = 100'000;

bool IsOneOf(std::string_view word, std::array<std::string_view, 3> words) {
  return std::ranges::find(words, word) != words.end();
}

Value ReadScalar(const YAML::Node& node) {
  const std::string& text = node.Scalar();
  const bool is_quoted = node.Tag() == "!";
  if (is_quoted) return text;
  if (text.empty() || text == "~" || IsOneOf(text, {"null", "Null", "NULL"})) return {};
  if (IsOneOf(text, {"true", "True", "TRUE"})) return true;
  if (IsOneOf(text, {"false", "False", "FALSE"})) return false;
  if (const auto integer = ParsePlainNumber<std::int64_t>(text)) return *integer;
  // ParsePlainNumber also reads "inf" and "nan", which are text here.
  const std::optional<double> number = ParsePlainNumber<double>(text);
  if (number && std::isfinite(*number)) return *number;
  return text;
}

class SettingsOfYaml {
 public:
  explicit SettingsOfYaml(std::string_view name) : name_(name) {}

  void ReadMapping(const YAML::Node& mapping);
  [[nodiscard]] Result<layout::Configuration> Take() {
    if (!problems_.ok()) return problems_;
    return std::move(settings_);
  }

 private:
  void Refuse(const YAML::Node& node, std::string_view what, std::string_view actual = {}) {
    problems_.Add(Error(ErrorKind::kUsage, what)
                      .File(fmt::format("{}:{}", name_, node.Mark().line + 1))
                      .Actual(actual));
  }
  // False once there are too many.
  bool CountValue(const YAML::Node& node);
  void ReadEntry(const YAML::Node& key, const YAML::Node& value);
  Value ReadList(const YAML::Node& list);

  const std::string name_;
  layout::Configuration settings_;
  Status problems_;
  std::size_t num_values_ = 0;
};

bool SettingsOfYaml::CountValue(const YAML::Node& node) {
  if (++num_values_ == kMaxValues) Refuse(node, "more values than any configuration has");
  return num_values_ < kMaxValues;
}

Value SettingsOfYaml::ReadList(const YAML::Node& list) {
  Value::List values;
  for (const YAML::Node& item : list) {
    if (!CountValue(item)) break;
    if (!item.IsScalar()) {
      Refuse(item, "a list may hold plain values only");
      break;
    }
    values.push_back(ReadScalar(item));
  }
  return values;
}

void SettingsOfYaml::ReadEntry(const YAML::Node& key, const YAML::Node& value) {
  if (!key.IsScalar()) {
    Refuse(key, "the name of a setting is not plain text");
    return;
  }
  const std::string& name = key.Scalar();
  if (settings_.contains(name)) {
    Refuse(key, "a setting stands in the file twice", name);
    return;
  }
  settings_[name] = value.IsSequence() ? ReadList(value)
                    : value.IsScalar() ? ReadScalar(value)
                                       : Value();
}

void SettingsOfYaml::ReadMapping(const YAML::Node& mapping) {
  for (const auto& entry : mapping) {
    if (!CountValue(entry.first)) return;
    if (entry.second.IsMap()) {
      ReadMapping(entry.second);
    } else {
      ReadEntry(entry.first, entry.second);
    }
  }
}

}  // namespace

Result<layout::Configuration> ParseYamlSettings(std::string_view text, std::string_view name) {
  if (Status status = CheckYamlEvents(text); !status.ok()) return std::move(status).File(name);
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(std::string(text));
    SettingsOfYaml settings(name);
    const bool is_empty = documents.empty() || (documents.size() == 1 && documents[0].IsNull());
    if (is_empty) return settings.Take();
    if (documents.size() > 1 || !documents[0].IsMap()) {
      return Error(ErrorKind::kUsage, "the configuration is not one mapping of settings")
          .File(name)
          .Hint("write one `name: value` a line");
    }
    settings.ReadMapping(documents[0]);
    return settings.Take();
  } catch (const YAML::Exception& error) {
    return Error(ErrorKind::kUsage, "the configuration is not YAML")
        .File(fmt::format("{}:{}", name, error.mark.line + 1))
        .Actual(error.msg);
  }
}

Result<std::pair<std::string, Value>> ParseAssignment(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    return Error(ErrorKind::kUsage, "--set takes KEY=VALUE").Actual(text);
  }
  const std::string key(text.substr(0, equals));
  // As the value of a mapping in flow style, so that it cannot bring further settings with it.
  const std::string yaml = fmt::format("{{value: {}\n}}", text.substr(equals + 1));
  const Result<layout::Configuration> parsed = ParseYamlSettings(yaml, "--set " + key);
  if (!parsed.ok() || parsed->size() != 1 || !parsed->contains("value")) {
    const bool is_pattern = text.substr(equals + 1).find('*') != std::string_view::npos;
    return Error(ErrorKind::kUsage, "--set takes one plain value, or a list")
        .Actual(text)
        .Hint(is_pattern ? fmt::format("in YAML a * begins an alias: quote a pattern that begins "
                                       "with one, and quote that from the shell, as in --set "
                                       "'{}=[\"*.name\"]'",
                                       key)
                         : std::string());
  }
  return std::pair(key, parsed->begin()->second);
}

}  // namespace ckpt::train

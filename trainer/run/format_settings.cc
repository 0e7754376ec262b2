#include "trainer/run/format_settings.h"

#include <cstdint>

#include <fmt/format.h>

#include "core/json/json_writer.h"

namespace ckpt::train {
namespace {

using layout::Value;

std::string YamlValue(const Value& value) {
  if (const bool* boolean = value.AsBool()) return *boolean ? "true" : "false";
  if (const std::int64_t* integer = value.AsInt()) return std::to_string(*integer);
  if (const double* number = value.AsFloat()) return JsonNumber(*number);
  if (const std::string* text = value.AsText()) return JsonQuote(*text);
  const Value::List* const list = value.AsList();
  if (list == nullptr) return "null";
  std::string text = "[";
  for (const Value& item : *list) text += (text.size() > 1 ? ", " : "") + YamlValue(item);
  return text + "]";
}

}  // namespace

std::string FormatSettings(const layout::Configuration& settings) {
  std::string text;
  for (const auto& [name, value] : settings) {
    text += fmt::format("{}: {}\n", name, YamlValue(value));
  }
  return text;
}

}  // namespace ckpt::train

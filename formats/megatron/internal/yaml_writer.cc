#include "formats/megatron/internal/yaml_writer.h"

#include <cmath>
#include <cstddef>
#include <cstdint>

#include <fmt/format.h>

#include "core/json/json_writer.h"

namespace ckpt::megatron {
namespace {

using layout::Configuration;
using layout::Value;

// As YAML of which PyYAML reads the same value.
std::string YamlOf(const Value& value) {
  if (const bool* const boolean = value.AsBool()) return *boolean ? "true" : "false";
  if (const std::int64_t* const integer = value.AsInt()) return std::to_string(*integer);
  if (const std::string* const text = value.AsText()) return JsonQuote(*text);
  if (const double* const number = value.AsFloat()) {
    if (std::isnan(*number)) return ".nan";
    if (std::isinf(*number)) return *number < 0 ? "-.inf" : ".inf";
    std::string text = JsonNumber(*number);
    const std::size_t exponent = text.find('e');
    if (exponent != std::string::npos && text.find('.') == std::string::npos) {
      text.insert(exponent, ".0");
    }
    return text;
  }
  const Value::List* const list = value.AsList();
  if (list == nullptr) return "null";
  std::string text = "[";
  for (const Value& item : *list) text += (text.size() > 1 ? ", " : "") + YamlOf(item);
  return text + "]";
}

}  // namespace

void YamlWriter::Top(std::string_view name, const Value& value) {
  text_ += fmt::format("{}: {}\n", name, YamlOf(value));
}

void YamlWriter::Begin(std::string_view section, std::string_view target) {
  text_ += fmt::format("{}:\n", section);
  Member("_target_", std::string(target));
}

void YamlWriter::Member(std::string_view name, const Value& value) {
  text_ += fmt::format("  {}: {}\n", name, YamlOf(value));
}

void YamlWriter::Reference(std::string_view name, std::string_view target) {
  text_ += fmt::format("  {}:\n    _target_: {}\n    _call_: false\n", name, target);
}

void YamlWriter::Partial(std::string_view name, std::string_view target,
                         const Configuration& args) {
  text_ +=
      fmt::format("  {}:\n    _target_: {}\n    _partial_: true\n    _args_: []\n", name, target);
  for (const auto& [arg, value] : args) text_ += fmt::format("    {}: {}\n", arg, YamlOf(value));
}

void YamlWriter::Members(std::span<const std::string_view> names, const Configuration& args) {
  for (const std::string_view name : names) {
    if (const auto found = args.find(name); found != args.end()) Member(name, found->second);
  }
}

void YamlWriter::NonNullMembers(std::span<const std::string_view> names,
                                const Configuration& args) {
  for (const std::string_view name : names) {
    const auto found = args.find(name);
    if (found != args.end() && !found->second.is_null()) Member(name, found->second);
  }
}

void YamlWriter::Call(std::string_view name, std::string_view target) {
  text_ += fmt::format("  {}:\n    _target_: {}\n    _call_: true\n", name, target);
}

}  // namespace ckpt::megatron

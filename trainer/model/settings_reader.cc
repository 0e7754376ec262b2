#include "trainer/model/settings_reader.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "core/base/nearest_match.h"
#include "core/base/units.h"

namespace ckpt::trainer {

using layout::Value;

const Value* SettingsReader::Find(std::string_view name) const {
  const auto found = settings_.find(name);
  return found == settings_.end() || found->second.is_null() ? nullptr : &found->second;
}

const Value* SettingsReader::Take(std::string_view name) {
  const Value* const value = Find(name);
  effective_.insert_or_assign(std::string(name), value == nullptr ? Value() : *value);
  return value;
}

std::int64_t SettingsReader::Int(std::string_view name, std::int64_t otherwise, std::int64_t min) {
  const Value* const value = Take(name);
  // A default that could not be given stands for absence itself.
  if (value == nullptr) return otherwise < min ? otherwise : Otherwise(name, otherwise);
  const std::int64_t* const number = value->AsInt();
  if (number != nullptr && *number >= min) return *number;
  Refuse(name, "is no such number", fmt::format("an integer >= {}", min));
  return otherwise;
}

std::int64_t SettingsReader::RequiredInt(std::string_view name, std::int64_t min) {
  if (!Has(name)) Refuse(name, "is missing");
  // Something to go on with.
  return Int(name, min, min);
}

std::optional<double> SettingsReader::OptionalNumber(std::string_view name, double min) {
  const Value* const value = Take(name);
  if (value == nullptr) return std::nullopt;
  const double number = value->AsFloat() != nullptr ? *value->AsFloat()
                        : value->AsInt() != nullptr ? static_cast<double>(*value->AsInt())
                                                    : std::nan("");
  if (std::isfinite(number) && number >= min) return number;
  Refuse(name, "is no such number", fmt::format("a number >= {}", min));
  return std::nullopt;
}

double SettingsReader::Number(std::string_view name, double otherwise, double min) {
  const std::optional<double> number = OptionalNumber(name, min);
  if (number) return *number;
  return Has(name) ? otherwise : Otherwise(name, otherwise);
}

bool SettingsReader::Flag(std::string_view name, bool otherwise) {
  const Value* const value = Take(name);
  if (value == nullptr) return Otherwise(name, otherwise);
  if (value->AsBool() != nullptr) return *value->AsBool();
  Refuse(name, "is no truth value", "true or false");
  return otherwise;
}

std::optional<std::vector<std::int64_t>> SettingsReader::IntList(std::string_view name) {
  const Value* const value = Take(name);
  if (value == nullptr) return std::nullopt;
  const Value::List* const list = value->AsList();
  std::vector<std::int64_t> numbers;
  bool is_valid = list != nullptr;
  if (list != nullptr) {
    for (const Value& item : *list) {
      is_valid = is_valid && item.AsInt() != nullptr && *item.AsInt() >= 0;
      if (is_valid) numbers.push_back(*item.AsInt());
    }
  }
  if (is_valid) return numbers;
  Refuse(name, "is no such list", "integers >= 0");
  return std::nullopt;
}

std::string SettingsReader::Text(std::string_view name, std::string_view otherwise) {
  const Value* const value = Take(name);
  if (value == nullptr) return Otherwise(name, std::string(otherwise));
  if (value->AsText() != nullptr) return *value->AsText();
  Refuse(name, "is no text");
  return std::string(otherwise);
}

std::vector<std::string> SettingsReader::TextList(std::string_view name) {
  const Value* const value = Take(name);
  if (value == nullptr) return {};
  const Value::List items = value->AsList() != nullptr ? *value->AsList() : Value::List{*value};
  std::vector<std::string> texts;
  for (const Value& item : items) {
    if (item.AsText() == nullptr) {
      Refuse(name, "is no such list", "texts");
      return {};
    }
    texts.push_back(*item.AsText());
  }
  return texts;
}

std::uint64_t SettingsReader::ByteSize(std::string_view name, std::uint64_t otherwise) {
  const Value* const value = Take(name);
  if (value == nullptr) return Otherwise(name, otherwise);
  if (value->AsInt() != nullptr && *value->AsInt() >= 0) {
    return static_cast<std::uint64_t>(*value->AsInt());
  }
  if (value->AsText() != nullptr) {
    const Result<std::uint64_t> bytes = ParseByteSize(*value->AsText());
    if (bytes.ok()) return *bytes;
  }
  Refuse(name, "is no size", "bytes, or a size such as 64MiB");
  return otherwise;
}

void SettingsReader::Refuse(std::string_view name, std::string_view why, std::string expected) {
  const Value* const value = Take(name);
  problems_.Add(Error(ErrorKind::kUsage, fmt::format("setting {} {}", name, why))
                    .Expected(std::move(expected))
                    .Actual(value == nullptr ? "" : FormatValue(*value)));
}

Status SettingsReader::Finish() {
  std::vector<std::string> names;
  names.reserve(effective_.size());
  for (const auto& [name, value] : effective_) names.push_back(name);
  for (const auto& [name, value] : settings_) {
    if (effective_.contains(name)) continue;
    const std::string nearest = NearestMatch(name, names);
    problems_.Add(Error(ErrorKind::kUsage, fmt::format("there is no setting {}", name))
                      .Hint(nearest.empty() ? "" : "did you mean " + nearest + "?"));
  }
  return problems_;
}

}  // namespace ckpt::trainer

#include "trainer/model/settings_reader.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "core/base/nearest_match.h"
#include "core/base/units.h"
#include "trainer/model/internal/setting_synonyms.h"

namespace ckpt::trainer {

using layout::Value;

namespace {

std::optional<double> AsNumber(const Value& value) {
  if (value.AsFloat() != nullptr) return *value.AsFloat();
  if (value.AsInt() != nullptr) return static_cast<double>(*value.AsInt());
  return std::nullopt;
}

// As the user wrote it, because 8.0 is not an integer.
std::string Shown(const Value& value) {
  const std::string text = FormatValue(value);
  const bool seems_integer =
      value.AsFloat() != nullptr && text.find_first_of(".en") == std::string::npos;
  return seems_integer ? text + ".0" : text;
}

// An integer equals a number of the same value.
bool IsSame(const Value& a, const Value& b) {
  return a == b || (AsNumber(a) && AsNumber(a) == AsNumber(b));
}

// A hint for a name that is not in `known`.
std::string HintFor(std::string_view name, const std::vector<std::string>& known) {
  if (const std::string_view why = WhyNoSetting(name); !why.empty()) return std::string(why);
  std::string meant(SettingCalled(name));
  if (std::ranges::find(known, meant) == known.end()) meant = NearestMatch(name, known);
  return meant.empty() ? "" : "did you mean " + meant + "?";
}

}  // namespace

const Value* SettingsReader::Find(std::string_view name) const {
  const auto found = settings_.find(name);
  return found == settings_.end() || found->second.is_null() ? nullptr : &found->second;
}

const Value* SettingsReader::Take(std::string_view name) {
  const Value* const value = Find(name);
  effective_.insert_or_assign(std::string(name), value == nullptr ? Value() : *value);
  return value;
}

const Value* SettingsReader::Take(std::string_view name, Value otherwise) {
  const Value* const value = Take(name);
  if (value == nullptr) effective_.insert_or_assign(std::string(name), otherwise);
  defaults_.insert_or_assign(std::string(name), std::move(otherwise));
  return value;
}

std::int64_t SettingsReader::Int(std::string_view name, std::int64_t otherwise, std::int64_t min) {
  // A default below `min` is not a valid value; it only means that the setting is absent.
  const Value* const value = otherwise < min ? Take(name) : Take(name, otherwise);
  if (value == nullptr) return otherwise;
  const std::int64_t* const number = value->AsInt();
  if (number != nullptr && *number >= min) return *number;
  Refuse(name, "is not a valid number", fmt::format("an integer >= {}", min));
  return otherwise;
}

bool SettingsReader::TakeWord(std::string_view name, std::string_view word) {
  const Value* const value = Find(name);
  if (value == nullptr || value->AsText() == nullptr || *value->AsText() != word) return false;
  Take(name);
  return true;
}

std::int64_t SettingsReader::RequiredInt(std::string_view name, std::int64_t min) {
  if (!Has(name)) Refuse(name, "is missing");
  // A value to continue with.
  return Int(name, min, min);
}

std::optional<double> SettingsReader::OptionalNumber(std::string_view name, double min) {
  const Value* const value = Take(name);
  if (value == nullptr) return std::nullopt;
  const double number = AsNumber(*value).value_or(std::nan(""));
  if (std::isfinite(number) && number >= min) return number;
  Refuse(name, "is not a valid number", fmt::format("a number >= {}", min));
  return std::nullopt;
}

double SettingsReader::Number(std::string_view name, double otherwise, double min) {
  Take(name, otherwise);
  if (!Has(name)) return otherwise;
  return OptionalNumber(name, min).value_or(otherwise);
}

std::optional<bool> SettingsReader::OptionalFlag(std::string_view name) {
  const Value* const value = Take(name);
  if (value == nullptr) return std::nullopt;
  if (value->AsBool() != nullptr) return *value->AsBool();
  Refuse(name, "is neither true nor false", "true or false");
  return std::nullopt;
}

bool SettingsReader::Flag(std::string_view name, bool otherwise) {
  Take(name, otherwise);
  if (!Has(name)) return otherwise;
  return OptionalFlag(name).value_or(otherwise);
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
  Refuse(name, "is not a valid list", "integers >= 0");
  return std::nullopt;
}

std::string SettingsReader::Text(std::string_view name, std::string_view otherwise) {
  const Value* const value = Take(name, std::string(otherwise));
  if (value == nullptr) return std::string(otherwise);
  if (value->AsText() != nullptr) return *value->AsText();
  Refuse(name, "is not text");
  return std::string(otherwise);
}

std::vector<std::string> SettingsReader::TextList(std::string_view name) {
  const Value* const value = Take(name);
  if (value == nullptr) return {};
  const Value::List items = value->AsList() != nullptr ? *value->AsList() : Value::List{*value};
  std::vector<std::string> texts;
  for (const Value& item : items) {
    if (item.AsText() == nullptr) {
      Refuse(name, "is not a valid list", "texts");
      return {};
    }
    texts.push_back(*item.AsText());
  }
  return texts;
}

std::uint64_t SettingsReader::ByteSize(std::string_view name, std::uint64_t otherwise) {
  const Value* const value = Take(name, otherwise);
  if (value == nullptr) return otherwise;
  if (value->AsInt() != nullptr && *value->AsInt() >= 0) {
    return static_cast<std::uint64_t>(*value->AsInt());
  }
  if (value->AsText() != nullptr) {
    const Result<std::uint64_t> bytes = ParseByteSize(*value->AsText());
    if (bytes.ok()) return *bytes;
  }
  Refuse(name, "is not a size", "bytes, or a size such as 64MiB");
  return otherwise;
}

bool SettingsReader::IsNews(std::string_view name) const {
  if (!IsGiven(name)) return false;
  const auto otherwise = defaults_.find(name);
  return otherwise == defaults_.end() || !IsSame(given_.find(name)->second, otherwise->second);
}

Status SettingsReader::Violation(std::string_view name, std::string_view why,
                                 std::string_view expected) {
  const Value* const value = Take(name);
  return Error(ErrorKind::kUsage, fmt::format("setting {} {}", name, why))
      .Expected(expected)
      .Actual(value == nullptr ? "" : Shown(*value));
}

void SettingsReader::Refuse(std::string_view name, std::string_view why, std::string_view expected,
                            std::string_view hint) {
  // Several readers may read a setting, but each problem is reported once.
  if (refused_.emplace(name, why).second) problems_.Add(Violation(name, why, expected).Hint(hint));
}

void SettingsReader::RefuseIdle(bool is_idle, std::string_view why,
                                std::initializer_list<std::string_view> names) {
  if (!is_idle) return;
  for (const std::string_view name : names) {
    if (!effective_.contains(name)) idle_.emplace(name);
    if (IsNews(name)) idle_problems_.Add(Violation(name, fmt::format("does nothing {}", why), {}));
  }
}

void SettingsReader::RefuseForeign(std::string_view name, std::string_view why) {
  idle_.emplace(name);
  if (ok() && IsNews(name)) idle_problems_.Add(Violation(name, why, {}));
}

Status SettingsReader::Finish() {
  problems_.Add(std::move(idle_problems_));
  std::vector<std::string> names(idle_.begin(), idle_.end());
  for (const auto& [name, value] : effective_) names.push_back(name);
  for (const auto& [name, value] : settings_) {
    if (effective_.contains(name) || idle_.contains(name)) continue;
    problems_.Add(Error(ErrorKind::kUsage, fmt::format("there is no setting {}", name))
                      .Hint(HintFor(name, names)));
  }
  return problems_;
}

}  // namespace ckpt::trainer

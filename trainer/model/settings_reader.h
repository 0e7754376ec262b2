// SettingsReader: typed settings by name. It reports all problems at once.
#ifndef CKPT_TRAINER_MODEL_SETTINGS_READER_H_
#define CKPT_TRAINER_MODEL_SETTINGS_READER_H_

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/layout/value.h"

namespace ckpt::trainer {

// Every getter marks its name as known, and returns the default if the setting is absent. A setting
// of the wrong type or out of range is recorded as a problem and gets the default too, so that
// reading continues. `settings` must outlive the reader.
class SettingsReader {
 public:
  // `given`: the part of `settings` that the user gave; null: all. The others were stored or
  // translated, and some may have no effect on this run. Must outlive the reader.
  explicit SettingsReader(const layout::Configuration& settings,
                          const layout::Configuration* given = nullptr)
      : settings_(settings), given_(given == nullptr ? settings : *given) {}

  [[nodiscard]] bool Has(std::string_view name) const { return Find(name) != nullptr; }

  // Whether the user gave the setting.
  [[nodiscard]] bool IsGiven(std::string_view name) const {
    const auto found = given_.find(name);
    return found != given_.end() && !found->second.is_null();
  }

  [[nodiscard]] bool HasList(std::string_view name) const {
    return Has(name) && Find(name)->AsList() != nullptr;
  }

  std::int64_t Int(std::string_view name, std::int64_t otherwise, std::int64_t min = 0);
  std::int64_t RequiredInt(std::string_view name, std::int64_t min = 1);
  // Integers count as numbers.
  double Number(std::string_view name, double otherwise, double min = 0);
  std::optional<double> OptionalNumber(std::string_view name, double min = 0);
  std::optional<bool> OptionalFlag(std::string_view name);
  bool Flag(std::string_view name, bool otherwise);
  // A list of integers, each at least 0; empty optional if the setting is absent.
  std::optional<std::vector<std::int64_t>> IntList(std::string_view name);
  std::string Text(std::string_view name, std::string_view otherwise);
  // A list of texts, or a single text; empty if the setting is absent.
  std::vector<std::string> TextList(std::string_view name);
  // A number of bytes, or a text such as "64MiB".
  std::uint64_t ByteSize(std::string_view name, std::uint64_t otherwise);

  // One of the words, also where it was read as the number that it looks like; the first is the
  // default.
  template <typename Enum>
  Enum Word(std::string_view name, const std::vector<std::pair<std::string_view, Enum>>& words);
  template <typename Enum>
  std::optional<Enum> OptionalWord(std::string_view name,
                                   const std::vector<std::pair<std::string_view, Enum>>& words);

  // Whether the setting is this word. If not, it stays to be read.
  bool TakeWord(std::string_view name, std::string_view word);

  // What a setting means if it is absent, where it is read without a default or not at all.
  // Refusals of settings that have no effect accept this value, as they do other defaults.
  void SetDefault(std::string_view name, layout::Value value) {
    defaults_.insert_or_assign(std::string(name), std::move(value));
  }

  // Records that the setting is wrong: "setting <name> <why>".
  void Refuse(std::string_view name, std::string_view why, std::string_view expected = {},
              std::string_view hint = {});
  // If `is_idle`, refuses those of `names` that the user gave: "setting <name> does nothing <why>".
  // A setting that equals its default is accepted. Call it after reading the names. Names that were
  // not read become known.
  void RefuseIdle(bool is_idle, std::string_view why,
                  std::initializer_list<std::string_view> names);
  // Refuses a setting that exists, but not in this run, and so is not read: "setting <name> <why>".
  // The rest is as of RefuseIdle. After a wrong setting, which may be why it is not read, it is not
  // refused.
  void RefuseForeign(std::string_view name, std::string_view why);

  // Whether there was no problem so far. Settings that do nothing are not counted.
  [[nodiscard]] bool ok() const { return problems_.ok(); }
  // All problems, including settings that were never read. Errors: kUsage.
  Status Finish();

  // Every setting that was read, as given or with its default; null if it was absent without
  // default.
  [[nodiscard]] const layout::Configuration& effective() const { return effective_; }

 private:
  // nullptr if absent or null.
  [[nodiscard]] const layout::Value* Find(std::string_view name) const;
  // "setting <name> <why>"; marks the name as known.
  Status Violation(std::string_view name, std::string_view why, std::string_view expected);
  // Whether the user gave another value than the default.
  [[nodiscard]] bool IsNews(std::string_view name) const;
  // Find, and marks the name as known.
  const layout::Value* Take(std::string_view name);
  // Take, and records the default of an absent setting.
  const layout::Value* Take(std::string_view name, layout::Value otherwise);

  const layout::Configuration& settings_;
  const layout::Configuration& given_;
  layout::Configuration effective_;
  layout::Configuration defaults_;           // defaults of settings that have one
  std::set<std::string, std::less<>> idle_;  // names that are known, but were not read
  Status problems_;
  std::set<std::pair<std::string, std::string>> refused_;  // names, and why
  Status idle_problems_;                                   // of RefuseIdle and RefuseForeign
};

template <typename Enum>
std::optional<Enum> SettingsReader::OptionalWord(
    std::string_view name, const std::vector<std::pair<std::string_view, Enum>>& words) {
  const layout::Value* const value = Take(name);
  if (value == nullptr) return std::nullopt;
  // YAML reads a word such as 0.19 as a number.
  const bool is_number = value->AsFloat() != nullptr || value->AsInt() != nullptr;
  const std::string text = is_number                    ? FormatValue(*value)
                           : value->AsText() != nullptr ? *value->AsText()
                                                        : std::string();
  std::string expected;
  for (const auto& [word, meaning] : words) {
    if (text == word) {
      effective_.insert_or_assign(std::string(name), text);
      return meaning;
    }
    expected += (expected.empty() ? "" : ", ") + std::string(word);
  }
  Refuse(name, "has an unknown value", expected);
  return std::nullopt;
}

template <typename Enum>
Enum SettingsReader::Word(std::string_view name,
                          const std::vector<std::pair<std::string_view, Enum>>& words) {
  Take(name, std::string(words.front().first));
  if (!Has(name)) return words.front().second;
  return OptionalWord(name, words).value_or(words.front().second);
}

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_MODEL_SETTINGS_READER_H_

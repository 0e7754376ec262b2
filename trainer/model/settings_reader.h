// SettingsReader: typed settings by name; everything wrong with them, at once.
#ifndef CKPT_TRAINER_MODEL_SETTINGS_READER_H_
#define CKPT_TRAINER_MODEL_SETTINGS_READER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/layout/value.h"

namespace ckpt::trainer {

// Every getter notes its name as known, and answers what stands in for an absent setting; a setting
// of the wrong kind or out of range becomes a problem and is answered alike, so that reading goes
// on. `settings` must outlive the reader.
class SettingsReader {
 public:
  explicit SettingsReader(const layout::Configuration& settings) : settings_(settings) {}

  [[nodiscard]] bool Has(std::string_view name) const { return Find(name) != nullptr; }

  [[nodiscard]] bool HasList(std::string_view name) const {
    return Has(name) && Find(name)->AsList() != nullptr;
  }

  std::int64_t Int(std::string_view name, std::int64_t otherwise, std::int64_t min = 0);
  std::int64_t RequiredInt(std::string_view name, std::int64_t min = 1);
  // Integers count as numbers.
  double Number(std::string_view name, double otherwise, double min = 0);
  std::optional<double> OptionalNumber(std::string_view name, double min = 0);
  bool Flag(std::string_view name, bool otherwise);
  // A list of integers, each at least 0; nothing if the setting is absent.
  std::optional<std::vector<std::int64_t>> IntList(std::string_view name);
  std::string Text(std::string_view name, std::string_view otherwise);
  // A list of texts, or one; empty if the setting is absent.
  std::vector<std::string> TextList(std::string_view name);
  // Bytes, or text as "64MiB".
  std::uint64_t ByteSize(std::string_view name, std::uint64_t otherwise);

  // One of the words; the first stands for absence.
  template <typename Enum>
  Enum Word(std::string_view name, const std::vector<std::pair<std::string_view, Enum>>& words);
  template <typename Enum>
  std::optional<Enum> OptionalWord(std::string_view name,
                                   const std::vector<std::pair<std::string_view, Enum>>& words);

  // Notes that the setting makes no sense: "setting <name> <why>".
  void Refuse(std::string_view name, std::string_view why, std::string expected = {});

  // Whether nothing was wrong so far.
  [[nodiscard]] bool ok() const { return problems_.ok(); }
  // Everything that was wrong, settings that nobody read included. Errors: kUsage.
  Status Finish();

  // Every setting that was read, as it was given or with what stood in for it; null where nothing
  // did.
  [[nodiscard]] const layout::Configuration& effective() const { return effective_; }

 private:
  // nullptr if absent or null.
  [[nodiscard]] const layout::Value* Find(std::string_view name) const;
  // Find, and notes the name.
  const layout::Value* Take(std::string_view name);
  // Notes what stands in for an absent setting.
  template <typename T>
  T Otherwise(std::string_view name, T value) {
    effective_.insert_or_assign(std::string(name), layout::Value(value));
    return value;
  }

  const layout::Configuration& settings_;
  layout::Configuration effective_;
  Status problems_;
};

template <typename Enum>
std::optional<Enum> SettingsReader::OptionalWord(
    std::string_view name, const std::vector<std::pair<std::string_view, Enum>>& words) {
  const layout::Value* const value = Take(name);
  if (value == nullptr) return std::nullopt;
  std::string expected;
  for (const auto& [word, meaning] : words) {
    if (value->AsText() != nullptr && *value->AsText() == word) return meaning;
    expected += (expected.empty() ? "" : ", ") + std::string(word);
  }
  Refuse(name, "is none of its words", expected);
  return std::nullopt;
}

template <typename Enum>
Enum SettingsReader::Word(std::string_view name,
                          const std::vector<std::pair<std::string_view, Enum>>& words) {
  const std::optional<Enum> meaning = OptionalWord(name, words);
  if (meaning) return *meaning;
  if (!Has(name)) Otherwise(name, std::string(words.front().first));
  return words.front().second;
}

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_MODEL_SETTINGS_READER_H_

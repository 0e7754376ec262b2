// SettingsReader: typed settings by name; everything wrong with them, at once.
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

// Every getter notes its name as known, and answers what stands in for an absent setting; a setting
// of the wrong kind or out of range becomes a problem and is answered alike, so that reading goes
// on. `settings` must outlive the reader.
class SettingsReader {
 public:
  // `given`: those of `settings` that the user gave; null: all of them. Others, which were stored or translated, may say more
  // than the run needs. Must outlive the reader.
  explicit SettingsReader(const layout::Configuration& settings,
                          const layout::Configuration* given = nullptr)
      : settings_(settings), given_(given == nullptr ? settings : *given) {}

  [[nodiscard]] bool Has(std::string_view name) const { return Find(name) != nullptr; }

  // Whether the user gave it.
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
  // Where `is_idle`, refuses those of `names` that the user gave: "setting <name> does nothing <why>". Settings that say what
  // stands in for their absence are no news, and stay. Comes after the names were read; names that were not become known.
  void RefuseIdle(bool is_idle, std::string_view why,
                  std::initializer_list<std::string_view> names);

  // Whether nothing was wrong so far, settings that do nothing aside.
  [[nodiscard]] bool ok() const { return problems_.ok(); }
  // Everything that was wrong, settings that nobody read included. Errors: kUsage.
  Status Finish();

  // Every setting that was read, as it was given or with what stood in for it; null where nothing
  // did.
  [[nodiscard]] const layout::Configuration& effective() const { return effective_; }

 private:
  // nullptr if absent or null.
  [[nodiscard]] const layout::Value* Find(std::string_view name) const;
  // "setting <name> <why>", with the name noted.
  Status Violation(std::string_view name, std::string_view why, std::string_view expected);
  // Find, and notes the name.
  const layout::Value* Take(std::string_view name);
  // Take, and notes what stands in for an absent setting.
  const layout::Value* Take(std::string_view name, layout::Value otherwise);

  const layout::Configuration& settings_;
  const layout::Configuration& given_;
  layout::Configuration effective_;
  layout::Configuration defaults_;  // what stands in for absent settings, where anything does
  std::set<std::string, std::less<>> idle_;  // names that were looked at by RefuseIdle alone
  Status problems_;
  std::set<std::pair<std::string, std::string>> refused_;  // names, and why
  Status idle_problems_;                                   // those of RefuseIdle
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
  Take(name, std::string(words.front().first));
  if (!Has(name)) return words.front().second;
  return OptionalWord(name, words).value_or(words.front().second);
}

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_MODEL_SETTINGS_READER_H_

#include "converters/verbs/internal/key_remedy.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/wildcard.h"

namespace ckpt {
namespace {

// "model._orig_mod.": the dotted beginnings of a key.
std::vector<std::string> BeginningsOf(std::string_view key) {
  std::vector<std::string> beginnings;
  for (std::size_t dot = key.find('.'); dot != key.npos; dot = key.find('.', dot + 1)) {
    beginnings.emplace_back(key.substr(0, dot + 1));
  }
  return beginnings;
}

using Renames = std::vector<std::pair<std::string, std::string>>;

// Adds patterns that take out what all `keys` have in common and a model does not: a part of their
// beginning, or a word between others.
void AddLikelyRenames(const std::vector<std::string>& keys, Renames& renames) {
  constexpr std::size_t kMaxBeginnings = 4;
  if (keys.empty()) return;
  std::vector<std::string> shared = BeginningsOf(keys.front());
  std::vector<std::string> words = shared;
  for (std::size_t w = words.size(); w-- > 1;) words[w].erase(0, words[w - 1].size());
  std::erase_if(shared, [&](const std::string& beginning) {
    return !std::ranges::all_of(keys, [&](const auto& key) { return key.starts_with(beginning); });
  });
  shared.insert(shared.begin(), "");
  shared.resize(std::min(shared.size(), kMaxBeginnings));
  for (std::size_t kept = 0; kept < shared.size(); ++kept) {
    for (std::size_t end = kept + 1; end < shared.size(); ++end) {
      renames.emplace_back(shared[end] + "*", shared[kept] + "*");
    }
  }
  for (const std::string& word : words) {
    const std::string between = "." + word;
    const bool is_in_all =
        std::ranges::all_of(keys, [&](const auto& key) { return key.find(between) != key.npos; });
    if (is_in_all) renames.emplace_back("*" + between + "*", "*.*");
  }
}

// "optimizer_0.": the first word of a key, with its dot; a key of one word itself.
std::string_view FirstWord(std::string_view key) {
  const std::size_t dot = key.find('.');
  return dot == key.npos ? key : key.substr(0, dot + 1);
}

std::set<std::string_view> FirstWordsOfModel(const layout::SourceMatch& match,
                                             std::span<const GlobalTensor> tensors) {
  std::set<std::string_view> words;
  for (const std::uint32_t position : match.positions) {
    if (position != layout::SourceMatch::kAbsent) words.insert(FirstWord(tensors[position].key));
  }
  return words;
}

// Globs that match these keys, which the model does not have, and no key of the model, by their
// first words. Nothing if some of them begins as the model's do, and so may be a part of it, or if
// the globs would be many.
std::vector<std::string> GlobsBeside(const std::vector<std::string>& keys,
                                     const std::set<std::string_view>& of_model) {
  constexpr std::size_t kMaxGlobs = 4;
  const auto is_plain = [](std::string_view text) {
    return text.find_first_of(R"(*?[\')") == text.npos;
  };
  std::map<std::string_view, std::vector<std::string>> by_word;
  for (const std::string& key : keys) {
    const std::string_view word = FirstWord(key);
    if (!is_plain(word) || of_model.contains(word)) return {};
    by_word[word].push_back(key);
  }
  std::vector<std::string> globs;
  for (const auto& [word, own] : by_word) {
    const bool is_one = own.size() == 1 && is_plain(own.front());
    globs.push_back(is_one ? own.front() : fmt::format("{}*", word));
  }
  if (globs.size() > kMaxGlobs) globs.clear();
  return globs;
}

// Keys that a wrapper may have named: all of them, then those of each first word that are enough to
// be the model.
std::vector<std::vector<std::string>> PerhapsWrapped(const std::vector<Problem>& problems,
                                                     std::size_t num_tensors) {
  std::vector<std::vector<std::string>> groups = {UnmappedKeys(problems)};
  if (num_tensors > kMaxTensorsToTry) return groups;
  std::map<std::string_view, std::vector<std::string>> by_word;
  for (const std::string& key : groups.front()) by_word[FirstWord(key)].push_back(key);
  const std::size_t missing = CountProblems(problems, ErrorKind::kMissing);
  std::vector<std::vector<std::string>> further;
  for (auto& [word, keys] : by_word) {
    if (by_word.size() > 1 && keys.size() >= missing) further.push_back(std::move(keys));
  }
  std::ranges::move(further, std::back_inserter(groups));
  return groups;
}

// The likeliest first.
Renames LikelyRenames(const std::vector<Problem>& problems, std::size_t num_tensors) {
  Renames renames;
  for (const std::vector<std::string>& keys : PerhapsWrapped(problems, num_tensors)) {
    AddLikelyRenames(keys, renames);
  }
  return renames;
}

// What the renamed tensors are in a naming. Nothing: the renaming does not help there.
std::optional<KeyRemedy> TryRename(const ModelSource& model, const layout::Naming& naming,
                                   std::span<const GlobalTensor> tensors,
                                   std::span<const GlobalTensor> renamed) {
  const auto match = layout::MatchSource(*model.family, naming.id, model.layout_config(), renamed);
  // To give keys names that are ignored takes nothing off a model.
  const auto is_renamed = [&](std::uint32_t position) {
    return position != layout::SourceMatch::kAbsent &&
           renamed[position].key != tensors[position].key;
  };
  if (!match.ok() || std::ranges::none_of(match->positions, is_renamed)) return std::nullopt;
  KeyRemedy found = {.drop = GlobsBesideModel(*match, renamed, match->problems)};
  if (!match->problems.empty() && found.drop.empty()) return std::nullopt;
  return found;
}

}  // namespace

std::size_t CountProblems(const std::vector<Problem>& problems, ErrorKind kind) {
  return static_cast<std::size_t>(std::ranges::count(problems, kind, &Problem::kind));
}

std::vector<std::string> UnmappedKeys(const std::vector<Problem>& problems) {
  std::vector<std::string> keys;
  for (const Problem& problem : problems) {
    if (problem.kind == ErrorKind::kUnmapped) keys.push_back(problem.tensor);
  }
  return keys;
}

std::vector<std::string> GlobsBesideModel(const layout::SourceMatch& match,
                                          std::span<const GlobalTensor> tensors,
                                          const std::vector<Problem>& problems) {
  if (CountProblems(problems, ErrorKind::kUnmapped) != problems.size()) return {};
  return GlobsBeside(UnmappedKeys(problems), FirstWordsOfModel(match, tensors));
}

KeyRemedy FindKeyRemedy(const ModelSource& model, const OpenModelOptions& options,
                        std::span<const GlobalTensor> tensors,
                        const std::vector<Problem>& problems) {
  KeyRemedy best;
  if (!options.rename.empty()) return best;
  for (const auto& [from, to] : LikelyRenames(problems, tensors.size())) {
    std::vector<GlobalTensor> renamed(tensors.begin(), tensors.end());
    for (GlobalTensor& tensor : renamed) {
      if (auto key = Rewrite(from, to, tensor.key)) tensor.key = *std::move(key);
    }
    for (const layout::Naming& naming : model.family->namings) {
      if (!options.naming.empty() && naming.id != options.naming) continue;
      std::optional<KeyRemedy> found = TryRename(model, naming, tensors, renamed);
      if (!found) continue;
      found->rename = fmt::format("{}={}", from, to);
      if (found->drop.empty()) return *std::move(found);
      // What names the beginning of keys says more than a word that may stand anywhere.
      const bool is_better =
          best.rename.empty() || (best.rename.starts_with('*') && !found->rename.starts_with('*'));
      if (is_better) best = *std::move(found);
    }
  }
  return best;
}

std::string DropOptions(const std::vector<std::string>& globs) {
  std::vector<std::string> options;
  options.reserve(globs.size());
  for (const std::string& glob : globs) options.push_back(fmt::format("--drop '{}'", glob));
  return fmt::format("{}", fmt::join(options, " "));
}

std::string RenameHint(const KeyRemedy& remedy) {
  return fmt::format(
      "ckpt-convert --rename '{}' takes off what a wrapper added to the keys{}", remedy.rename,
      remedy.drop.empty() ? std::string()
                          : fmt::format(", and {} leaves out what is no part of the model",
                                        DropOptions(remedy.drop)));
}

}  // namespace ckpt

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

#include "converters/verbs/internal/offered_tensors.h"
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

// Adds patterns that take out what all `keys` have in common and a model does not: a part of their
// beginning, or a word between others.
void AddLikelyRenames(const std::vector<std::string>& keys, std::vector<RewriteRule>& renames) {
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
      renames.push_back(
          {.from = LiteralPattern(shared[end]) + "*", .to = LiteralPattern(shared[kept]) + "*"});
    }
  }
  for (const std::string& word : words) {
    const std::string between = "." + word;
    const bool is_in_all =
        std::ranges::all_of(keys, [&](const auto& key) { return key.find(between) != key.npos; });
    if (is_in_all) renames.push_back({.from = "*" + LiteralPattern(between) + "*", .to = "*.*"});
  }
}

// "optimizer_0.": the first word of a key, with its dot and the names of wrappers before it; a key
// of one word itself.
std::string_view FirstWord(std::string_view key) {
  for (std::size_t dot = key.find('.'); dot != key.npos; dot = key.find('.', dot + 1)) {
    const std::string_view word = key.substr(0, dot + 1);
    if (!WithoutWrappers(word).empty()) return word;
  }
  return key;
}

// "policy.extra." of "policy.extra.x", which is taken for "extra.x": the beginning of a key, with
// the first word of the name for which it is taken. The key itself if the two end differently.
std::string_view BeginningOf(std::string_view key, std::string_view name) {
  const std::string_view rest = name.substr(FirstWord(name).size());
  return key.ends_with(rest) ? key.substr(0, key.size() - rest.size()) : key;
}

// Which tensors are the model's, and which are neither that nor ignored.
struct Accounted {
  std::set<std::uint32_t> of_model = {};
  std::vector<std::uint32_t> beside = {};
};

Accounted AccountFor(const layout::SourceMatch& match, std::size_t num_tensors) {
  Accounted accounted;
  accounted.of_model.insert(match.positions.begin(), match.positions.end());
  accounted.of_model.erase(layout::SourceMatch::kAbsent);
  std::set<std::uint32_t> known = accounted.of_model;
  for (const layout::IgnoredKey& ignored : match.ignored) known.insert(ignored.position);
  for (std::uint32_t t = 0; t < num_tensors; ++t) {
    if (!known.contains(t)) accounted.beside.push_back(t);
  }
  return accounted;
}

// Globs that match the keys of all tensors beside the model, and no key of the model, by the first
// words of their names. Nothing if some of them is named as the model's are, and so may be a part
// of it, or if the globs would be many.
std::vector<std::string> GlobsBeside(const Accounted& accounted,
                                     std::span<const GlobalTensor> tensors,
                                     const std::vector<std::string>& keys) {
  constexpr std::size_t kMaxGlobs = 4;
  const auto is_plain = [](std::string_view text) {
    return text.find_first_of(R"(*?[\')") == text.npos;
  };
  std::set<std::string_view> words;
  for (const std::uint32_t t : accounted.of_model) words.insert(FirstWord(tensors[t].key));
  std::map<std::string_view, std::vector<std::string>> by_beginning;
  for (const std::uint32_t t : accounted.beside) {
    const std::string_view beginning = BeginningOf(keys[t], tensors[t].key);
    if (!is_plain(beginning) || words.contains(FirstWord(tensors[t].key))) return {};
    by_beginning[beginning].push_back(keys[t]);
  }
  if (by_beginning.size() > kMaxGlobs) return {};
  std::vector<std::string> globs;
  for (const auto& [text, own] : by_beginning) {
    const std::string_view beginning = text;
    const auto begins_so = [&](std::uint32_t t) { return keys[t].starts_with(beginning); };
    if (std::ranges::any_of(accounted.of_model, begins_so)) return {};
    const bool is_one = own.size() == 1 && is_plain(own.front());
    globs.push_back(is_one ? own.front() : fmt::format("{}*", beginning));
  }
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
std::vector<RewriteRule> LikelyRenames(const std::vector<Problem>& problems,
                                       std::size_t num_tensors) {
  std::vector<RewriteRule> renames;
  for (const std::vector<std::string>& keys : PerhapsWrapped(problems, num_tensors)) {
    AddLikelyRenames(keys, renames);
  }
  return renames;
}

// What the renamed tensors are in a naming. Nothing: the renaming does not help there.
std::optional<KeyRemedy> TryRename(const ModelSource& model, const layout::Naming& naming,
                                   std::span<const GlobalTensor> tensors,
                                   const std::vector<std::string>& keys,
                                   std::span<const GlobalTensor> renamed) {
  const auto match = layout::MatchSource(*model.family, naming.id, model.layout_config(), renamed);
  // To give keys names that are ignored takes nothing off a model.
  const auto is_renamed = [&](std::uint32_t position) {
    return position != layout::SourceMatch::kAbsent &&
           renamed[position].key != tensors[position].key;
  };
  if (!match.ok() || std::ranges::none_of(match->positions, is_renamed)) return std::nullopt;
  KeyRemedy found = {.drop = GlobsBesideModel(*match, renamed, keys, match->problems)};
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
                                          const std::vector<std::string>& keys,
                                          const std::vector<Problem>& problems) {
  if (CountProblems(problems, ErrorKind::kUnmapped) != problems.size()) return {};
  return GlobsBeside(AccountFor(match, tensors.size()), tensors, keys);
}

KeyRemedy FindKeyRemedy(const ModelSource& model, const OpenModelOptions& options,
                        std::span<const GlobalTensor> tensors, const std::vector<std::string>& keys,
                        const std::vector<Problem>& problems) {
  KeyRemedy best;
  if (!options.rename.empty() || !options.take_as.empty()) return best;
  for (const RewriteRule& rename : LikelyRenames(problems, tensors.size())) {
    std::vector<GlobalTensor> renamed(tensors.begin(), tensors.end());
    for (std::size_t t = 0; t < renamed.size(); ++t) {
      const std::optional<std::string> key = Rewrite(rename.from, rename.to, keys[t]);
      if (key) renamed[t].key = WithoutWrappers(*key);
    }
    for (const layout::Naming& naming : model.family->namings) {
      if (!options.naming.empty() && naming.id != options.naming) continue;
      std::optional<KeyRemedy> found = TryRename(model, naming, tensors, keys, renamed);
      if (!found) continue;
      found->rename = FormatRewrite(rename);
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

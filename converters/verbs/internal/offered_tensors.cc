#include "converters/verbs/internal/offered_tensors.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/glob.h"
#include "core/base/quote.h"
#include "core/base/wildcard.h"
#include "core/checkpoint/no_match.h"
#include "core/checkpoint/unlisted.h"

namespace ckpt {
namespace {

using namespace std::string_view_literals;

bool MatchesAny(const std::vector<std::string>& patterns, std::string_view key) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return MatchesGlob(pattern, key); });
}

bool IsChosen(const OpenModelOptions& options, std::string_view key) {
  return options.only.empty() || MatchesAny(options.only, key);
}

bool IsLeftOut(const OpenModelOptions& options, std::string_view key) {
  return MatchesAny(options.drop, key) || !IsChosen(options, key);
}

// Keys of entries that the reader found and could not read, so that the index does not have them.
std::set<std::string> UnreadableKeys(const CheckpointIndex& index) {
  std::set<std::string> keys;
  for (const Problem& problem : ErrorsOfUnlisted(index)) keys.insert(problem.tensor);
  return keys;
}

// A pattern that has no effect is an error, because it is probably mistyped.
Status CheckPatterns(const OpenModelOptions& options, const CheckpointIndex& index) {
  if (!HasPatterns(options)) return OkStatus();
  Status status;
  std::vector<std::string> keys = KeysOfEntries(index);
  for (const std::string& key : UnreadableKeys(index)) keys.push_back(key);
  for (const std::string& pattern : options.only) {
    const bool chooses = std::ranges::any_of(
        keys, [&](const std::string& key) { return MatchesGlob(pattern, key); });
    if (!chooses) status.Add(NoKeyMatches("--only", pattern, keys));
  }
  if (!status.ok()) return status;
  for (const std::string& pattern : options.drop) {
    const std::string* named = nullptr;
    bool drops = false;
    for (const std::string& key : keys) {
      if (!MatchesGlob(pattern, key)) continue;
      named = &key;
      drops = drops || IsChosen(options, key);
    }
    if (drops) continue;
    if (named == nullptr) {
      status.Add(NoKeyMatches("--drop", pattern, keys));
    } else {
      status.Add(
          Error(ErrorKind::kUsage, "--drop removes nothing that --only chooses")
              .Actual(Quote(pattern))
              .Hint("ckpt-convert --only leaves out " + *named + " already: remove this --drop"));
    }
  }
  return status;
}

// Whether the patterns leave a tensor, or, of a checkpoint without tensors, an object.
bool LeavesSome(const OpenModelOptions& options, const CheckpointIndex& index,
                const Offered& offered) {
  if (!HasPatterns(options) || !offered.tensors.empty()) return true;
  return index.tensors().empty() &&
         std::ranges::any_of(index.objects(), [&](const ObjectEntry& object) {
           return !IsLeftOut(options, object.key);
         });
}

Offered OfferAs(const std::map<std::string, std::string>& take_as, const CheckpointIndex& index) {
  Offered offered;
  const auto tensors = index.tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto taken = take_as.find(tensors[i].key);
    if (taken == take_as.end()) continue;
    offered.tensors.push_back(tensors[i]);
    offered.tensors.back().key = taken->second;
    offered.positions.push_back(static_cast<std::uint32_t>(i));
  }
  return offered;
}

struct RenamedKey {
  std::string pattern;  // of OpenModelOptions::rename
  std::string key;
};

std::optional<RenamedKey> Renamed(const OpenModelOptions& options, const std::string& key) {
  const auto exact = options.rename.find(LiteralPattern(key));
  if (exact != options.rename.end()) {
    return RenamedKey{exact->first, *Rewrite(exact->first, exact->second, key)};
  }
  for (const auto& [from, to] : options.rename) {
    if (!HasStar(from)) continue;
    if (auto rewritten = Rewrite(from, to, key)) return RenamedKey{from, *std::move(rewritten)};
  }
  return std::nullopt;
}

// Objects go along where tensors keep their keys (`with_objects`); elsewhere they take no name.
Status CheckRenamed(const OpenModelOptions& options, const CheckpointIndex& index,
                    bool with_objects) {
  if (options.rename.empty()) return OkStatus();
  std::set<std::string> unused;
  for (const auto& [from, to] : options.rename) unused.insert(from);
  std::map<std::string, std::string> taken;  // new key → the source's
  const std::vector<std::string> keys = KeysOfEntries(index);
  for (const std::string& key : keys) {
    if (IsLeftOut(options, key)) continue;
    std::vector<std::string> patterns;
    for (const auto& [from, to] : options.rename) {
      if (HasStar(from) && Rewrite(from, to, key)) patterns.push_back(Quote(from));
    }
    const bool is_named = options.rename.contains(LiteralPattern(key));
    if (!is_named && patterns.size() > 1) {
      return Error(ErrorKind::kUsage, "several --rename are for one key")
          .Tensor(key)
          .Expected("one")
          .Actual(fmt::format("{}", fmt::join(patterns, " and ")));
    }
    const std::optional<RenamedKey> renamed = Renamed(options, key);
    if (renamed) unused.erase(renamed->pattern);
    if (renamed && renamed->key.empty() && !key.empty()) {
      return Error(ErrorKind::kUsage, "--rename leaves nothing of a key").Tensor(key);
    }
    if (!with_objects && index.FindObject(key) != nullptr) continue;
    const auto [other, is_new] = taken.emplace(renamed ? renamed->key : key, key);
    if (is_new) continue;
    return Error(ErrorKind::kUsage, "--rename gives two keys of the source one name")
        .Tensor(other->first)
        .Actual(fmt::format("{} and {}", Quote(other->second), Quote(key)));
  }
  if (unused.empty()) return OkStatus();
  const std::string& pattern = *unused.begin();
  const bool is_known = std::ranges::any_of(
      keys, [&](const std::string& key) { return Rewrite(pattern, pattern, key).has_value(); });
  return Error(ErrorKind::kUsage,
               is_known ? "nothing to rename: the keys that it matches are left out, or renamed "
                          "by their own --rename"
                        : "nothing to rename: the source has no such key")
      .Actual(Quote(pattern));
}

}  // namespace

std::optional<std::string> KeyInTarget(const OpenModelOptions& options, const std::string& key) {
  if (IsLeftOut(options, key)) return std::nullopt;
  const std::optional<RenamedKey> renamed = Renamed(options, key);
  return renamed ? renamed->key : key;
}

Result<Offered> OfferTensors(const OpenModelOptions& options, ModelSource& model) {
  if (!options.take_as.empty()) return OfferAs(options.take_as, model.source().index());
  CKPT_RETURN_IF_ERROR(CheckPatterns(options, model.source().index()));
  CKPT_RETURN_IF_ERROR(CheckRenamed(options, model.source().index(), !model.family));
  Offered offered;
  const auto tensors = model.source().index().tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (IsLeftOut(options, tensors[i].key)) {
      // A damaged shape has no bytes that could be counted.
      const Result<std::uint64_t> bytes = CountBytes(tensors[i].shape, tensors[i].dtype);
      model.left_out.push_back(
          {tensors[i].key, bytes.ok() ? *bytes : 0, std::string(kLeftOutOnRequest)});
      continue;
    }
    offered.tensors.push_back(tensors[i]);
    offered.positions.push_back(static_cast<std::uint32_t>(i));
    if (const auto renamed = Renamed(options, tensors[i].key)) {
      offered.tensors.back().key = renamed->key;
    }
  }
  for (const std::string& key : UnreadableKeys(model.source().index())) {
    if (IsLeftOut(options, key)) model.left_out.push_back({key, 0, std::string(kLeftOutOnRequest)});
  }
  if (!LeavesSome(options, model.source().index(), offered)) return NothingIsLeft(options, model);
  return offered;
}

std::vector<std::string> KeysInSource(const ModelSource& model, const Offered& offered) {
  std::vector<std::string> keys;
  keys.reserve(offered.positions.size());
  for (const std::uint32_t position : offered.positions) {
    keys.push_back(model.source().index().tensors()[position].key);
  }
  return keys;
}

bool HasPatterns(const OpenModelOptions& options) {
  return !options.only.empty() || !options.drop.empty();
}

Status NothingIsLeft(const OpenModelOptions& options, const ModelSource& model) {
  std::vector<std::string> patterns;
  for (const std::string& only : options.only) patterns.push_back("--only " + Quote(only));
  for (const std::string& drop : options.drop) patterns.push_back("--drop " + Quote(drop));
  return Error(ErrorKind::kUsage, "the patterns leave nothing to convert")
      .File(model.checkpoint->path.string())
      .Actual(fmt::format("{}", fmt::join(patterns, ", ")));
}

std::string WithoutWrappers(std::string_view key) {
  constexpr std::array kWrappers = {"_orig_mod."sv, "_checkpoint_wrapped_module."sv,
                                    "_fsdp_wrapped_module."sv};
  std::string name;
  while (!key.empty()) {
    const std::size_t dot = key.find('.');
    const std::string_view part = key.substr(0, dot == key.npos ? dot : dot + 1);
    if (std::ranges::find(kWrappers, part) == kWrappers.end()) name += part;
    key.remove_prefix(part.size());
  }
  return name;
}

Status RemoveWrappers(const CheckpointIndex& index, Offered& offered) {
  std::map<std::string, std::uint32_t> taken;
  for (std::size_t t = 0; t < offered.tensors.size(); ++t) {
    std::string& key = offered.tensors[t].key;
    key = WithoutWrappers(key);
    const auto [other, is_new] = taken.emplace(key, offered.positions[t]);
    if (is_new) continue;
    return Error(ErrorKind::kUnsupported,
                 "two keys are one without the names that PyTorch's wrappers give")
        .Tensor(key)
        .Actual(fmt::format("{} and {}", Quote(index.tensors()[other->second].key),
                            Quote(index.tensors()[offered.positions[t]].key)))
        .Hint("ckpt-convert --drop leaves one of them out");
  }
  return OkStatus();
}

}  // namespace ckpt

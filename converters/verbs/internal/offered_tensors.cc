#include "converters/verbs/internal/offered_tensors.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/glob.h"
#include "core/base/quote.h"
#include "core/base/wildcard.h"
#include "core/checkpoint/no_match.h"

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

// A pattern that has no effect is an error, because it is probably mistyped.
Status CheckPatterns(const OpenModelOptions& options, const CheckpointIndex& index) {
  Status status;
  for (const std::string& pattern : options.only) {
    const bool chooses = std::ranges::any_of(index.tensors(), [&](const GlobalTensor& tensor) {
      return MatchesGlob(pattern, tensor.key);
    });
    if (!chooses) status.Add(NoTensorMatches("--only", pattern, index));
  }
  if (!status.ok()) return status;
  for (const std::string& pattern : options.drop) {
    const GlobalTensor* named = nullptr;
    bool drops = false;
    for (const GlobalTensor& tensor : index.tensors()) {
      if (!MatchesGlob(pattern, tensor.key)) continue;
      named = &tensor;
      drops = drops || IsChosen(options, tensor.key);
    }
    if (drops) continue;
    if (named == nullptr) {
      status.Add(NoTensorMatches("--drop", pattern, index));
    } else {
      status.Add(Error(ErrorKind::kUsage, "--drop removes nothing that --only chooses")
                     .Actual(Quote(pattern))
                     .Hint("ckpt-convert --only leaves out " + named->key +
                           " already: remove this --drop"));
    }
  }
  return status;
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
  const auto exact = options.rename.find(key);
  if (exact != options.rename.end()) return RenamedKey{exact->first, exact->second};
  for (const auto& [from, to] : options.rename) {
    if (from.find('*') == std::string::npos) continue;
    if (auto rewritten = Rewrite(from, to, key)) return RenamedKey{from, *std::move(rewritten)};
  }
  return std::nullopt;
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

}  // namespace

std::optional<std::string> KeyInTarget(const OpenModelOptions& options, const std::string& key) {
  if (MatchesAny(options.drop, key) || !IsChosen(options, key)) return std::nullopt;
  const std::optional<RenamedKey> renamed = Renamed(options, key);
  return renamed ? renamed->key : key;
}

Result<Offered> OfferTensors(const OpenModelOptions& options, ModelSource& model) {
  if (!options.take_as.empty()) return OfferAs(options.take_as, model.source().index());
  CKPT_RETURN_IF_ERROR(CheckPatterns(options, model.source().index()));
  Offered offered;
  std::set<std::string> unused;
  for (const auto& [from, to] : options.rename) unused.insert(from);
  const auto tensors = model.source().index().tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const bool excluded =
        MatchesAny(options.drop, tensors[i].key) || !IsChosen(options, tensors[i].key);
    if (excluded) {
      CKPT_ASSIGN_OR_RETURN(const std::uint64_t bytes,
                            CountBytes(tensors[i].shape, tensors[i].dtype));
      model.left_out.push_back({tensors[i].key, bytes, std::string(kLeftOutOnRequest)});
      continue;
    }
    offered.tensors.push_back(tensors[i]);
    offered.positions.push_back(static_cast<std::uint32_t>(i));
    if (const auto renamed = Renamed(options, tensors[i].key)) {
      unused.erase(renamed->pattern);
      offered.tensors.back().key = renamed->key;
    }
  }
  if (!unused.empty()) {
    return Error(ErrorKind::kUsage, "nothing to rename: the source has no such key")
        .Actual(Quote(*unused.begin()));
  }
  if (offered.tensors.empty() && !tensors.empty()) {
    return Error(ErrorKind::kUsage, "--only and --drop leave no tensor to convert");
  }
  return offered;
}

void RemoveWrappers(Offered& offered) {
  for (GlobalTensor& tensor : offered.tensors) tensor.key = WithoutWrappers(tensor.key);
}

}  // namespace ckpt

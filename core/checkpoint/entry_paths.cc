#include "core/checkpoint/entry_paths.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include <fmt/format.h>

namespace ckpt {
namespace {

// Loaders fill a list up to the last position that is named.
constexpr std::int64_t kMaxPosition = std::int64_t{1} << 22;

bool IsPossible(const PathStep& step) {
  const auto* const position = std::get_if<std::int64_t>(&step);
  return position == nullptr || (*position >= 0 && *position <= kMaxPosition);
}

bool IsKey(const PathStep& step) { return !std::holds_alternative<std::int64_t>(step); }

// Neither leads through the other, and where they part, both are keys or both are positions.
bool FitBeside(const EntryPath& a, const EntryPath& b) {
  const auto [of_a, of_b] = std::ranges::mismatch(a, b);
  return of_a != a.end() && of_b != b.end() && IsKey(*of_a) == IsKey(*of_b);
}

// As Python's str.
struct TextOfStep {
  std::string operator()(const std::string& key) const { return key; }
  std::string operator()(const NumberKey& key) const { return std::to_string(key.number); }
  std::string operator()(ConstantKey key) const {
    switch (key) {
      case ConstantKey::kNone:
        return "None";
      case ConstantKey::kFalse:
        return "False";
      case ConstantKey::kTrue:
        return "True";
    }
    return {};
  }
  std::string operator()(const AttributeName& attribute) const { return attribute.name; }
  std::string operator()(std::int64_t position) const { return std::to_string(position); }
};

}  // namespace

EntryPath WithTextKeys(EntryPath path) {
  for (PathStep& step : path) {
    const bool is_other_key =
        std::holds_alternative<NumberKey>(step) || std::holds_alternative<ConstantKey>(step);
    if (is_other_key) step = std::visit(TextOfStep{}, step);
  }
  return path;
}

std::string JoinSteps(const EntryPath& path) {
  std::vector<std::string> steps;
  for (const PathStep& step : path) steps.push_back(std::visit(TextOfStep{}, step));
  return fmt::format("{}", fmt::join(steps, "."));
}

bool StayApartAsTexts(const EntryPaths& paths) {
  std::map<EntryPath, EntryPath> containers;  // by their places as texts
  for (const auto& [key, path] : paths) {
    if (JoinSteps(path) != key) return false;
    const EntryPath texts = WithTextKeys(path);
    for (auto steps = std::ptrdiff_t{1}; steps < std::ssize(path); ++steps) {
      EntryPath place(path.begin(), path.begin() + steps);
      const auto [found, is_new] =
          containers.try_emplace(EntryPath(texts.begin(), texts.begin() + steps), place);
      if (!is_new && found->second != place) return false;
    }
  }
  return true;
}

bool IsPlace(const EntryPath& path) {
  return !path.empty() && IsKey(path.front()) && std::ranges::all_of(path, IsPossible);
}

bool MakeOneObject(const EntryPaths& paths) {
  std::vector<const EntryPath*> sorted;
  sorted.reserve(paths.size());
  for (const auto& [key, path] : paths) {
    if (!IsPlace(path)) return false;
    sorted.push_back(&path);
  }
  std::ranges::sort(sorted, {}, [](const EntryPath* path) -> const EntryPath& { return *path; });
  // In this order a path stands right before those below it, and all keys of a container before all
  // positions in it. So neighbours show every conflict.
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    if (!FitBeside(*sorted[i - 1], *sorted[i])) return false;
  }
  return true;
}

std::set<EntryPath> ListsLostToTorch(const EntryPaths& paths,
                                     const std::function<bool(const std::string& key)>& is_tensor) {
  struct List {
    std::set<std::int64_t> positions;
    bool is_taken_apart = false;
  };
  std::map<EntryPath, List> lists;
  for (const auto& [key, path] : paths) {
    for (auto at = path.begin(); at != path.end(); ++at) {
      if (IsKey(*at)) continue;
      List& list = lists[EntryPath(path.begin(), at)];
      list.positions.insert(std::get<std::int64_t>(*at));
      // A list within it is taken apart, too, or becomes a mapping.
      const bool is_last = at + 1 == path.end();
      list.is_taken_apart = list.is_taken_apart || !is_last || is_tensor(key);
    }
  }
  std::set<EntryPath> lost;
  for (auto& [place, list] : lists) {
    const bool has_gap = *list.positions.rbegin() >= std::ssize(list.positions);
    if (has_gap || !list.is_taken_apart) lost.insert(place);
  }
  return lost;
}

void MakeMappings(const std::set<EntryPath>& lists, EntryPaths& paths) {
  if (lists.empty()) return;
  for (auto& [key, path] : paths) {
    const EntryPath in_lists = path;
    for (std::size_t i = 0; i < path.size(); ++i) {
      const auto end = in_lists.begin() + static_cast<std::ptrdiff_t>(i);
      const bool is_of_list = !IsKey(path[i]) && lists.contains(EntryPath(in_lists.begin(), end));
      if (is_of_list) path[i] = std::visit(TextOfStep{}, in_lists[i]);
    }
  }
}

}  // namespace ckpt

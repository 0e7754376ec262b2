#include "core/layout/match.h"

#include <algorithm>
#include <compare>
#include <optional>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "core/base/glob.h"
#include "core/layout/internal/choices.h"
#include "core/tensor/cast.h"

namespace ckpt::layout {
namespace {

using KeyMap = std::unordered_map<std::string_view, std::uint32_t>;

// How many tensors of the layout the checkpoint has, if names start with this prefix.
std::size_t CountHits(const ResolvedLayout& layout, std::string_view prefix, const KeyMap& keys) {
  std::size_t hits = 0;
  std::string key;
  for (const ResolvedTensor& tensor : layout.tensors) {
    key.assign(prefix);
    key += tensor.name;
    if (keys.contains(key)) ++hits;
  }
  return hits;
}

const IgnoreRule* FindIgnoreRule(const std::vector<IgnoreRule>& rules, std::string_view key) {
  for (const IgnoreRule& rule : rules) {
    if (MatchesGlob(rule.pattern, key)) return &rule;
  }
  return nullptr;
}

Problem KeyProblem(ErrorKind kind, std::string message, std::string key) {
  Problem problem;
  problem.kind = kind;
  problem.message = std::move(message);
  problem.tensor = std::move(key);
  return problem;
}

// How badly a form fits: less is better. Where names do not decide, shapes do.
struct Misfit {
  std::size_t names = 0;   // in the layout or in the checkpoint alone
  std::size_t shapes = 0;  // of tensors that both have
  // NOLINTNEXTLINE(modernize-use-nullptr)
  friend auto operator<=>(const Misfit&, const Misfit&) = default;
};

Misfit MeasureMisfit(const ResolvedLayout& layout, std::span<const GlobalTensor> tensors,
                     const KeyMap& keys, std::size_t num_ignorable) {
  Misfit misfit;
  std::size_t found = 0;
  for (const ResolvedTensor& tensor : layout.tensors) {
    const auto stored = keys.find(layout.Key(tensor));
    if (stored != keys.end()) {
      ++found;
      if (!SameDims(tensors[stored->second].shape, tensor.shape)) ++misfit.shapes;
    } else if (!tensor.derived) {
      ++misfit.names;
    }
  }
  misfit.names += keys.size() - std::min(keys.size(), found + num_ignorable);
  return misfit;
}

void Account(SourceMatch& match, std::span<const GlobalTensor> tensors, const KeyMap& keys) {
  std::vector<bool> is_mapped(tensors.size(), false);
  for (std::uint32_t t = 0; t < match.layout.tensors.size(); ++t) {
    const ResolvedTensor& tensor = match.layout.tensors[t];
    const std::string key = match.layout.Key(tensor);
    const auto found = keys.find(key);
    if (found == keys.end()) {
      match.positions.push_back(SourceMatch::kAbsent);
      if (tensor.derived) continue;
      match.problems.push_back(
          KeyProblem(ErrorKind::kMissing, "tensor of the model is not in the checkpoint", key));
      match.problems.back().expected = FormatDims(tensor.shape);
      if (!tensor.is_stripped) match.problems.back().hint = match.layout.form;
      continue;
    }
    match.positions.push_back(found->second);
    is_mapped[found->second] = true;
    if (tensor.derived) match.derived_present.push_back(t);
    const GlobalTensor& actual = tensors[found->second];
    if (SameDims(actual.shape, tensor.shape)) continue;
    match.problems.push_back(KeyProblem(ErrorKind::kShapeMismatch,
                                        "stored shape differs from the configuration's", key));
    match.problems.back().expected = FormatDims(tensor.shape);
    match.problems.back().actual = FormatDims(actual.shape);
  }
  for (std::uint32_t i = 0; i < tensors.size(); ++i) {
    if (is_mapped[i]) continue;
    if (const IgnoreRule* rule = FindIgnoreRule(match.layout.ignores, tensors[i].key)) {
      match.ignored.push_back({i, rule->reason, rule->is_bookkeeping});
      continue;
    }
    match.problems.push_back(KeyProblem(
        ErrorKind::kUnmapped, "no rule of the layout table maps this key", tensors[i].key));
    match.problems.back().actual = FormatDims(tensors[i].shape);
  }
}

// The form whose names fit best, of a model that has all that its configuration says.
Result<SourceMatch> MatchForms(const LayoutTable& table, std::string_view naming_id,
                               const Configuration& config, std::span<const GlobalTensor> tensors,
                               const Choices& fixed) {
  // Resolve first: it reports an unknown naming and wrong choices.
  Result<ResolvedLayout> first = Resolve(table, naming_id, config, fixed);
  if (!first.ok()) return std::move(first).status();
  const Naming& naming = *table.FindNaming(naming_id);

  KeyMap keys;
  std::size_t num_ignorable = 0;
  for (std::uint32_t i = 0; i < tensors.size(); ++i) {
    keys.emplace(tensors[i].key, i);
    if (FindIgnoreRule(first->ignores, tensors[i].key) != nullptr) ++num_ignorable;
  }
  std::string prefix = naming.prefixes.front();
  std::size_t best_hits = 0;
  for (const std::string& candidate : naming.prefixes) {
    const std::size_t hits = CountHits(*first, candidate, keys);
    if (hits > best_hits) {
      best_hits = hits;
      prefix = candidate;
    }
  }

  std::optional<ResolvedLayout> best;
  Misfit least;
  for (const Choices& form : ListChoices(naming, fixed)) {
    Result<ResolvedLayout> layout = form == first->choices
                                        ? Result<ResolvedLayout>(*first)
                                        : ResolveExactly(table, naming_id, config, form);
    // This form cannot hold the model, so the checkpoint does not have it.
    if (!layout.ok()) continue;
    layout->prefix = prefix;
    const Misfit misfit = MeasureMisfit(*layout, tensors, keys, num_ignorable);
    if (best && misfit >= least) continue;
    best = std::move(layout).value();
    least = misfit;
    if (least == Misfit()) break;
  }
  SourceMatch match;
  match.layout = best ? *std::move(best) : std::move(first).value();
  Account(match, tensors, keys);
  return match;
}

}  // namespace

Result<SourceMatch> MatchSource(const LayoutTable& table, std::string_view naming,
                                const Configuration& config, std::span<const GlobalTensor> tensors,
                                const Choices& fixed) {
  Result<SourceMatch> match = MatchForms(table, naming, config, tensors, fixed);
  if (!match.ok() || !match->layout.has_extra) return match;
  const bool leaves_out = table.FindNaming(naming)->leaves_out_extra;
  if (match->problems.empty() && !leaves_out) return match;
  Configuration counts_none = config;
  counts_none.insert_or_assign(table.extra->key, Value(std::int64_t{0}));
  Result<SourceMatch> without = MatchForms(table, naming, counts_none, tensors, fixed);
  if (!without.ok()) return match;
  if (!leaves_out && match->problems.size() <= without->problems.size()) return match;
  without->lacks_extra = true;
  return without;
}

TargetDtypes InheritDtypes(const Composition& composition, const ResolvedLayout& target,
                           const SourceMatch& source, std::span<const GlobalTensor> tensors) {
  TargetDtypes result;
  for (std::size_t t = 0; t < target.tensors.size(); ++t) {
    const GlobalTensor* first = nullptr;
    const GlobalTensor* other = nullptr;
    DType common = DType::kFloat32;
    bool is_held = true;
    for (const Nest& nest : composition.nests[t]) {
      if (nest.is_zero_fill()) continue;
      const std::uint32_t position = source.positions[nest.source];
      if (position == SourceMatch::kAbsent) continue;
      const DType dtype = tensors[position].dtype;
      if (first == nullptr) {
        first = &tensors[position];
        common = dtype;
      }
      if (dtype == first->dtype) continue;
      other = &tensors[position];
      const std::optional<DType> wider = CommonDtype(common, dtype);
      is_held = is_held && wider;
      common = wider.value_or(common);
    }
    // If no source gives a dtype, use that of the tensor before it.
    const DType otherwise = result.dtypes.empty() ? DType::kFloat32 : result.dtypes.back();
    result.dtypes.push_back(first == nullptr ? otherwise : common);
    if (other == nullptr) continue;
    Problem problem =
        KeyProblem(ErrorKind::kDtypeMismatch, "parts of one tensor are stored in different dtypes",
                   target.Key(target.tensors[t]));
    problem.expected = fmt::format("{} as in {}", DTypeName(first->dtype), first->key);
    problem.actual = fmt::format("{} in {}", DTypeName(other->dtype), other->key);
    (is_held ? result.mixed : result.problems).push_back(std::move(problem));
  }
  return result;
}

}  // namespace ckpt::layout

#include "converters/verbs/internal/compare_runs.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "converters/verbs/internal/convert_run.h"
#include "converters/verbs/internal/pair_models.h"
#include "converters/verbs/optimizer_groups.h"
#include "core/training/run_settings.h"

namespace ckpt {
namespace {

// The same number for all groups.
constexpr std::string_view kUpdates = "step";
// Groups that differ in it alone are one (OptimizerGroups).
constexpr std::string_view kIsExpert = "is_expert_parallel";

const std::string& KeyAt(const ModelSource& model, std::size_t position) {
  return model.source().index().tensors()[position].key;
}

// What the optimizers keep.
struct KeptPairs {
  std::vector<TensorPair> pairs;
  std::vector<TensorAsked> only_a;
  std::vector<TensorAsked> only_b;
};

// The tensors as they are stored that `tensors` are made of, each once.
std::vector<TensorAsked> AsStored(const ModelSource& model,
                                  const std::vector<TensorAsked>& tensors) {
  std::set<std::size_t> positions;
  for (const TensorAsked& tensor : tensors) {
    for (const std::size_t position : StoredPositions(tensor)) positions.insert(position);
  }
  std::vector<TensorAsked> stored;
  for (const std::size_t position : positions) {
    stored.push_back(AskAsStored(model.source().index(), position));
  }
  return stored;
}

// Under A's own form each tensor is made of one that A stores, and is called like it.
void AddUnderStoredKeys(const ModelSource& a, const ModelSource& b, ModelPairs paired,
                        KeptPairs& kept) {
  for (auto* const pairs : {&paired.weights, &paired.copies_in_a}) {
    for (TensorPair& pair : *pairs) {
      const std::vector<std::size_t> positions = StoredPositions(pair.a);
      if (!positions.empty()) pair.key = KeyAt(a, positions.front());
      kept.pairs.push_back(std::move(pair));
    }
  }
  std::ranges::move(paired.copies_in_b, std::back_inserter(kept.pairs));
  std::ranges::move(AsStored(a, paired.only_a), std::back_inserter(kept.only_a));
  std::ranges::move(AsStored(b, paired.only_b), std::back_inserter(kept.only_b));
}

// Everything that one side's optimizer keeps under a name that the other's does not know.
void AddAll(const ModelSource& moment, std::vector<TensorAsked>& only) {
  for (const std::uint32_t position : moment.match.positions) {
    if (position == layout::SourceMatch::kAbsent) continue;
    only.push_back(AskAsStored(moment.source().index(), position));
  }
}

// The position of a moment in `state`; nothing if its optimizer keeps none of this name.
std::optional<std::size_t> FindMoment(const TrainingState& state, const std::string& name) {
  const auto found = std::ranges::find(state.moment_names, name);
  if (found == state.moment_names.end()) return std::nullopt;
  return static_cast<std::size_t>(found - state.moment_names.begin());
}

Status PairMoments(const TrainingState& a, const TrainingState& b, KeptPairs& kept) {
  for (std::size_t m = 0; m < a.moments.size(); ++m) {
    const std::optional<std::size_t> other = FindMoment(b, a.moment_names[m]);
    if (!other) {
      AddAll(a.moments[m], kept.only_a);
      continue;
    }
    CKPT_ASSIGN_OR_RETURN(ModelPairs paired, PairModels(a.moments[m], b.moments[*other]));
    AddUnderStoredKeys(a.moments[m], b.moments[*other], std::move(paired), kept);
  }
  for (std::size_t m = 0; m < b.moments.size(); ++m) {
    if (!FindMoment(a, b.moment_names[m])) AddAll(b.moments[m], kept.only_b);
  }
  return OkStatus();
}

// Whether a tensor is made of exact weights that the side has beside rounded copies.
bool IsMain(const RunSide& side, const TensorAsked& asked) {
  return std::ranges::any_of(StoredPositions(asked), [&](std::size_t position) {
    return side.state.main_weights.contains(KeyAt(side.weights, position));
  });
}

// Which of a side's stored weights are copies, of exact ones beside them.
class RoundedCopies {
 public:
  explicit RoundedCopies(const RunSide& side) : are_any_(!side.state.main_weights.empty()) {
    const layout::SourceMatch& match = side.state.weights.match;
    for (std::size_t t = 0; t < match.positions.size(); ++t) {
      if (match.positions[t] == layout::SourceMatch::kAbsent || match.layout.tensors[t].derived) {
        continue;
      }
      if (side.state.main_weights.contains(KeyAt(side.weights, match.positions[t]))) continue;
      exact_.insert(match.positions[t]);
    }
  }

  [[nodiscard]] bool Contain(const TensorAsked& weight) const {
    return are_any_ && std::ranges::none_of(StoredPositions(weight), [&](std::size_t position) {
             return exact_.contains(position);
           });
  }

 private:
  bool are_any_;
  std::set<std::size_t> exact_;  // of what is not trained
};

// Rounds an exact weight to the dtype of a copy.
void RoundLike(const TensorAsked& copy, TensorAsked& exact) {
  const bool is_narrower = IsCastable(copy.dtype) && IsCastable(exact.dtype) &&
                           ElementBytes(copy.dtype) < ElementBytes(exact.dtype);
  if (is_narrower) exact.dtype = copy.dtype;
}

Status PairExactWeights(const RunSide& a, const RunSide& b, KeptPairs& kept) {
  if (a.state.main_weights.empty() && b.state.main_weights.empty()) return OkStatus();
  CKPT_ASSIGN_OR_RETURN(ModelPairs exact, PairModels(a.state.weights, b.state.weights));
  // Other weights are exact as the model has them.
  for (auto* const pairs : {&exact.weights, &exact.copies_in_a, &exact.copies_in_b}) {
    std::erase_if(*pairs,
                  [&](const TensorPair& pair) { return !IsMain(a, pair.a) && !IsMain(b, pair.b); });
  }
  std::erase_if(exact.only_a, [&](const TensorAsked& asked) { return !IsMain(a, asked); });
  std::erase_if(exact.only_b, [&](const TensorAsked& asked) { return !IsMain(b, asked); });
  AddUnderStoredKeys(a.state.weights, b.state.weights, std::move(exact), kept);
  return OkStatus();
}

// Where one side alone has rounded copies: what they are compared with. `weights` are the pairs of
// the models' weights.
Status PairRoundedCopies(const RunSide& a, const RunSide& b, std::vector<TensorPair>& weights) {
  if (a.state.main_weights.empty() == b.state.main_weights.empty()) return OkStatus();
  if (!a.state.main_weights.empty()) {
    const RoundedCopies copies(a);
    for (TensorPair& pair : weights) {
      if (copies.Contain(pair.a)) RoundLike(pair.a, pair.b);
    }
    return OkStatus();
  }
  // A's weights are paired with the exact ones of B. B's copies are pairs of their own, as B has
  // them.
  const RoundedCopies copies(b);
  CKPT_ASSIGN_OR_RETURN(ModelPairs turned, PairModels(b.weights, a.weights));
  std::erase_if(weights, [&](const TensorPair& pair) { return copies.Contain(pair.b); });
  for (auto* const pairs : {&turned.weights, &turned.copies_in_a}) {
    for (TensorPair& pair : *pairs) {
      if (!copies.Contain(pair.a)) continue;
      RoundLike(pair.a, pair.b);
      const std::string& key = KeyAt(b.weights, StoredPositions(pair.a).front());
      weights.push_back({key, std::move(pair.b), std::move(pair.a)});
    }
  }
  return OkStatus();
}

using Settings = std::map<std::string, layout::Value>;

// Visits settings (run_settings.h), and lists them.
struct ListSettings {
  std::string_view prefix;
  Settings& into;

  void operator()(std::string_view name, const auto& value) const {
    into[fmt::format("{}{}", prefix, name)] = value;
  }
  void operator()(std::string_view name, const std::array<double, 2>& value) const {
    into[fmt::format("{}{}", prefix, name)] = layout::Value::List{value[0], value[1]};
  }
};

Settings SettingsOf(const TrainingRun& run) {
  Settings settings = {{std::string(kUpdates), run.finished_updates()}};
  VisitProgress(run, ListSettings{"", settings});
  VisitSchedule(run.schedule, ListSettings{kOfSchedule, settings});
  return settings;
}

Settings SettingsOf(const ParamGroup& group) {
  Settings settings;
  VisitGroup(group, ListSettings{kOfGroups, settings});
  VisitOptimizer(group, ListSettings{kOfGroups, settings});
  for (const auto& [name, value] : group.others) {
    settings.emplace(fmt::format("{}{}", kOfGroups, name), value);
  }
  return settings;
}

SettingNames SaidBy(const TrainingState& state) {
  SettingNames said = state.said;
  said.erase(fmt::format("{}{}", kOfGroups, kIsExpert));
  said.emplace(kUpdates);
  return said;
}

// Notes the settings of `names` that both have, and that differ.
void CompareSettings(const Settings& a, const Settings& b, const std::vector<std::string>& names,
                     const std::function<void(DifferentSetting)>& note) {
  for (const std::string& name : names) {
    const auto in_a = a.find(name);
    const auto in_b = b.find(name);
    if (in_a == a.end() || in_b == b.end() || in_a->second == in_b->second) continue;
    note({.name = name, .a = in_a->second, .b = in_b->second});
  }
}

bool NamesParameters(const TrainingRun& run) {
  return !run.group_of.empty() && !run.others_by_decay;
}

// Tensors of which every one is in a group on either side. In the form of the side that names its
// groups' parameters. Where none does, shapes tell them apart, and do so best where layers are
// tensors of their own.
Result<std::vector<TensorPair>> PairGrouped(const RunSide& a, const RunSide& b) {
  const ModelSource& of_a = a.state.updated;
  const ModelSource& of_b = b.state.updated;
  const bool a_names = NamesParameters(a.state.run);
  const bool b_names = NamesParameters(b.state.run);
  const bool has_more = of_b.match.positions.size() > of_a.match.positions.size();
  if (a_names == b_names ? !has_more : a_names) {
    CKPT_ASSIGN_OR_RETURN(ModelPairs paired, PairModels(of_a, of_b));
    return std::move(paired.weights);
  }
  CKPT_ASSIGN_OR_RETURN(ModelPairs paired, PairModels(of_b, of_a));
  for (TensorPair& pair : paired.weights) std::swap(pair.a, pair.b);
  return std::move(paired.weights);
}

// The group of every tensor on one side and on the other.
Status CompareGroups(const RunSide& a, const RunSide& b, RunComparison& run) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<TensorPair> pairs, PairGrouped(a, b));
  CKPT_ASSIGN_OR_RETURN(const OptimizerGroups groups_a, OptimizerGroups::Of(a.state));
  CKPT_ASSIGN_OR_RETURN(const OptimizerGroups groups_b, OptimizerGroups::Of(b.state));
  const auto group_of = [](const OptimizerGroups& groups, const TensorPair& pair,
                           const TensorAsked& asked) {
    return groups.Find({.key = pair.key, .dtype = asked.dtype, .shape = asked.shape}, asked.recipe);
  };
  std::vector<DifferentSetting> different;
  for (const TensorPair& pair : pairs) {
    CKPT_ASSIGN_OR_RETURN(const std::optional<std::size_t> of_a, group_of(groups_a, pair, pair.a));
    CKPT_ASSIGN_OR_RETURN(const std::optional<std::size_t> of_b, group_of(groups_b, pair, pair.b));
    if (!of_a || !of_b) continue;
    CompareSettings(
        SettingsOf(groups_a.groups()[*of_a]), SettingsOf(groups_b.groups()[*of_b]), run.compared,
        [&](DifferentSetting setting) {
          const auto known = std::ranges::find_if(different, [&](const DifferentSetting& other) {
            return other.name == setting.name && other.a == setting.a && other.b == setting.b;
          });
          if (known != different.end()) {
            ++known->num_tensors;
            return;
          }
          setting.num_tensors = 1;
          setting.first_tensor = KeyAt(a.weights, StoredPositions(pair.a).front());
          different.push_back(std::move(setting));
        });
  }
  std::ranges::move(different, std::back_inserter(run.different));
  return OkStatus();
}

RunComparison CompareSaid(const RunSide& a, const RunSide& b) {
  const SettingNames said_a = SaidBy(a.state);
  const SettingNames said_b = SaidBy(b.state);
  RunComparison run;
  std::ranges::set_intersection(said_a, said_b, std::back_inserter(run.compared));
  std::ranges::set_difference(said_a, said_b, std::back_inserter(run.only_a));
  std::ranges::set_difference(said_b, said_a, std::back_inserter(run.only_b));
  CompareSettings(SettingsOf(a.state.run), SettingsOf(b.state.run), run.compared,
                  [&](DifferentSetting setting) { run.different.push_back(std::move(setting)); });
  run.groups_unknown = CompareGroups(a, b, run);
  if (!run.groups_unknown.ok()) {
    std::erase_if(run.compared,
                  [](const std::string& name) { return name.starts_with(kOfGroups); });
  }
  std::ranges::stable_sort(run.different, {}, &DifferentSetting::name);
  return run;
}

}  // namespace

Status CompareRuns(const RunSide& a, const RunSide& b, Comparison& comparison) {
  KeptPairs kept;
  CKPT_RETURN_IF_ERROR(PairMoments(a.state, b.state, kept));
  CKPT_RETURN_IF_ERROR(PairExactWeights(a, b, kept));
  std::vector<TensorPair> weights = comparison.pairs;
  CKPT_RETURN_IF_ERROR(PairRoundedCopies(a, b, weights));

  const bool has_settings = comparison.a.no_settings.ok() && comparison.b.no_settings.ok();
  comparison.run = has_settings ? CompareSaid(a, b) : RunComparison();
  comparison.pairs = std::move(weights);
  std::ranges::move(kept.pairs, std::back_inserter(comparison.pairs));
  std::ranges::move(kept.only_a, std::back_inserter(comparison.a.only));
  std::ranges::move(kept.only_b, std::back_inserter(comparison.b.only));
  std::ranges::sort(comparison.a.only, {}, &TensorAsked::key);
  std::ranges::sort(comparison.b.only, {}, &TensorAsked::key);
  comparison.a.left_out = LeftOutOfRun(a.state, std::move(comparison.a.left_out));
  comparison.b.left_out = LeftOutOfRun(b.state, std::move(comparison.b.left_out));
  return OkStatus();
}

}  // namespace ckpt

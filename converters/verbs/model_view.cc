#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "converters/families/known_namings.h"
#include "converters/verbs/model_source.h"
#include "core/base/name_list.h"
#include "core/layout/affine.h"
#include "core/layout/compose.h"

namespace ckpt {
namespace {

// What is wrong with several tensors as one problem, which names some of them: a naming that has no
// place for part of the model has none for many tensors.
Status NameTogether(const Status& status) {
  std::vector<Problem> together;
  std::vector<std::vector<std::string>> tensors;  // parallel
  for (const Problem& problem : status.problems()) {
    const auto known = std::ranges::find_if(together, [&](const Problem& other) {
      return other.kind == problem.kind && other.message == problem.message &&
             !other.tensor.empty() && !problem.tensor.empty();
    });
    const auto at = static_cast<std::size_t>(known - together.begin());
    if (known == together.end()) {
      together.push_back(problem);
      tensors.emplace_back();
    }
    tensors[at].push_back(problem.tensor);
  }
  for (std::size_t p = 0; p < together.size(); ++p) {
    if (tensors[p].size() == 1) continue;
    together[p].tensor = NameSome(tensors[p]);
    together[p].expected.clear();  // these are of the first alone
    together[p].actual.clear();
  }
  return Status(std::move(together));
}

// The keys of the tensors that hold what the tables call `logical`.
std::vector<std::string> KeysHolding(const ModelSource& model, std::string_view logical) {
  const layout::ResolvedLayout& own = model.match.layout;
  std::vector<std::string> keys;
  for (std::size_t t = 0; t < own.tensors.size(); ++t) {
    const std::uint32_t position = model.match.positions[t];
    if (own.tensors[t].derived || position == layout::SourceMatch::kAbsent) continue;
    const bool holds = std::ranges::any_of(own.tensors[t].segments, [&](const auto& segment) {
      return segment.logical != layout::kZeros && own.logicals[segment.logical].name == logical;
    });
    if (holds) keys.push_back(model.source().index().tensors()[position].key);
  }
  return keys;
}

// What a naming has no place for, by the source's keys: people do not know the words of the tables.
Status InWordsOfSource(const ModelSource& model, const Status& status) {
  std::vector<Problem> named;
  std::set<std::string> told;
  for (const Problem& problem : status.problems()) {
    std::vector<std::string> keys;
    if (problem.kind == ErrorKind::kCoverage) keys = KeysHolding(model, problem.tensor);
    if (keys.empty()) named.push_back(problem);
    for (std::string& key : keys) {
      if (!told.insert(key).second) continue;
      named.push_back(problem);
      named.back().tensor = std::move(key);
      named.back().actual.clear();  // it counts in axes of the tables
    }
  }
  return Status(std::move(named));
}

// Tensors of which the source has some parts and lacks others.
class PartlyMissing {
 public:
  explicit PartlyMissing(const ModelSource& model) : model_(model) {}

  // `parts`: positions in the source's layout.
  void Add(std::string tensor, const std::vector<std::uint32_t>& parts) {
    tensors_.push_back(std::move(tensor));
    for (const std::uint32_t part : parts) (IsAbsent(part) ? absent_ : stored_).insert(part);
  }

  [[nodiscard]] bool IsAbsent(std::uint32_t part) const {
    return model_.match.positions[part] == layout::SourceMatch::kAbsent;
  }

  // What the source has stands under its own keys, which tell weights from what an optimizer keeps
  // for them. Errors: kMissing.
  [[nodiscard]] Status Check() const {
    if (tensors_.empty()) return OkStatus();
    std::vector<std::string> absent;
    for (const std::uint32_t part : absent_) {
      absent.push_back(model_.match.layout.Key(model_.match.layout.tensors[part]));
    }
    std::vector<std::string> stored;
    for (const std::uint32_t part : stored_) {
      stored.push_back(model_.source().index().tensors()[model_.match.positions[part]].key);
    }
    return Error(ErrorKind::kMissing, "part of a tensor is missing in the source")
        .File(model_.checkpoint->path.string())
        .Tensor(NameSome(tensors_))
        .Expected(fmt::format("also something for {}", NameSome(absent)))
        .Actual(fmt::format("only {}", NameSome(stored)));
  }

 private:
  const ModelSource& model_;
  std::vector<std::string> tensors_;
  std::set<std::uint32_t> absent_;
  std::set<std::uint32_t> stored_;
};

Result<ModelView> ViewInForm(const ModelSource& model, const std::string& naming,
                             const layout::Choices& choices, MixedDtypes mixed) {
  ModelView view;
  Result<layout::ResolvedLayout> resolved =
      layout::Resolve(*model.family, naming, model.layout_config(), choices);
  if (!resolved.ok()) return NameTogether(InWordsOfSource(model, resolved.status()));
  view.layout = *std::move(resolved);
  CKPT_ASSIGN_OR_RETURN(layout::Composition composition,
                        layout::Compose(model.match.layout, view.layout));
  layout::TargetDtypes dtypes = layout::InheritDtypes(composition, view.layout, model.match,
                                                      model.source().index().tensors());
  Status status(std::move(dtypes.problems));
  if (mixed == MixedDtypes::kRefuse) status.Add(Status(std::move(dtypes.mixed)));
  PartlyMissing missing(model);
  for (std::size_t t = 0; t < view.layout.tensors.size(); ++t) {
    const layout::ResolvedTensor& tensor = view.layout.tensors[t];
    TensorRecipe recipe{.nests = std::move(composition.nests[t]), .source_dtype = dtypes.dtypes[t]};
    std::vector<std::uint32_t> parts;
    for (layout::Nest& nest : recipe.nests) {
      if (nest.is_zero_fill()) continue;
      parts.push_back(nest.source);
      nest.source = model.match.positions[nest.source];
    }
    const auto absent =
        std::ranges::count_if(parts, [&](std::uint32_t part) { return missing.IsAbsent(part); });
    if (absent != 0) {
      if (absent != std::ssize(parts)) missing.Add(view.layout.Key(tensor), parts);
      continue;
    }
    view.tensors.push_back(
        {.key = view.layout.Key(tensor), .dtype = recipe.source_dtype, .shape = tensor.shape});
    view.recipes.push_back(std::move(recipe));
    view.derived.push_back(tensor.derived);
    view.expected.push_back(tensor.expected);
  }
  status.Add(missing.Check());
  if (!status.ok()) return status;
  return view;
}

// Says how a conversion asks for a form of the naming in which no tensor is there in part: layers
// that are stacked may have different parts. Empty: there is no such form, or the model is a state
// in memory, which no conversion reads. Whoever saves it knows what else can be done.
std::string HintAtOtherForm(const ModelSource& model, const std::string& naming,
                            const layout::Choices& choices, MixedDtypes mixed) {
  const KnownNaming* const known = FindNaming(naming);
  if (known == nullptr || model.checkpoint->path.empty()) return {};
  for (const NamingChoice& choice : known->choices) {
    for (const std::string_view value : choice.values) {
      if (value == kOriginalChoice) continue;
      layout::Choices other = choices;
      other[std::string(choice.name)] = value;
      if (!ViewInForm(model, naming, other, mixed).ok()) continue;
      return fmt::format("with ckpt-convert {} {} every tensor is there whole or not at all",
                         OptionOf(choice.name), value);
    }
  }
  return {};
}

}  // namespace

ModelView ViewAsStored(const ModelSource& model) {
  ModelView view;
  for (const StoredTensor& stored : model.stored) {
    const GlobalTensor& tensor = model.source().index().tensors()[stored.position];
    TensorRecipe recipe{.nests = {}, .source_dtype = tensor.dtype};
    if (!IsEmpty(WholeBox(tensor.shape))) {
      recipe.nests.push_back(layout::IdentityNest(stored.position, tensor.shape));
    }
    view.tensors.push_back({.key = stored.key, .dtype = tensor.dtype, .shape = tensor.shape});
    view.recipes.push_back(std::move(recipe));
    view.derived.push_back(false);
    view.expected.push_back(false);
  }
  return view;
}

Result<ModelView> ViewModel(const ModelSource& model, const std::string& naming,
                            const layout::Choices& choices, MixedDtypes mixed) {
  Result<ModelView> view = ViewInForm(model, naming, choices, mixed);
  if (!view.ok() && view.status().kind() == ErrorKind::kCoverage) {
    return std::move(view)
        .status()
        .File(model.checkpoint->path.string())
        .Hint(model.is_family_guessed ? kSayTheFamily : std::string_view());
  }
  if (view.ok() || view.status().kind() != ErrorKind::kMissing) return view;
  return std::move(view).status().Hint(HintAtOtherForm(model, naming, choices, mixed));
}

}  // namespace ckpt

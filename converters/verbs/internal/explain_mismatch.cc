#include "converters/verbs/internal/explain_mismatch.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "converters/config/hf_config.h"
#include "converters/config/megatron_args.h"
#include "converters/verbs/internal/key_remedy.h"
#include "core/base/counted.h"
#include "core/base/glob.h"
#include "core/base/name_list.h"
#include "core/base/text_number.h"
#include "core/layout/find_value.h"
#include "core/layout/numbered_axes.h"
#include "formats/registry/stored_run.h"

namespace ckpt {
namespace {

// How many settings are tried, and the largest value that is tried.
constexpr std::size_t kMaxSettingsToTry = 64;
constexpr std::int64_t kMaxValueToTry = 1 << 17;
// Counts up to this are compared with names, whatever they are: it takes no second.
constexpr std::int64_t kMaxUsualCount = 1024;
// How many other counts are tried.
constexpr std::size_t kMaxCountsToTry = 8;

struct QuantisedName {
  std::string_view suffix;
  std::string_view method;
};

// The names that quantisation methods give to the parts of a weight.
constexpr std::array kQuantisedNames = {
    QuantisedName{".qweight", "gptq or awq"},
    QuantisedName{".qzeros", "gptq or awq"},
    QuantisedName{".SCB", "bitsandbytes, 8 bits"},
    QuantisedName{".weight.absmax", "bitsandbytes, 4 bits"},
    QuantisedName{".weight_packed", "compressed-tensors"},
};

std::string_view MethodByName(std::string_view key) {
  for (const QuantisedName& name : kQuantisedNames) {
    if (key.ends_with(name.suffix)) return name.method;
  }
  return {};
}

// What a weight of 8 bits or less adds to its name for its scales.
constexpr std::array<std::string_view, 2> kScaleSuffixes = {"_scale_inv", "_scale"};
constexpr std::string_view kBlocksSuffix = "_blocks";
constexpr std::string_view kBlockScalesSuffix = "_scales";

bool HasScales(const GlobalTensor& tensor, const std::set<std::string_view>& keys) {
  if (ElementBytes(tensor.dtype) != 1) return false;
  if (tensor.key.ends_with(kBlocksSuffix)) {
    const std::string_view weight =
        std::string_view(tensor.key).substr(0, tensor.key.size() - kBlocksSuffix.size());
    return keys.contains(fmt::format("{}{}", weight, kBlockScalesSuffix));
  }
  return std::ranges::any_of(kScaleSuffixes, [&](std::string_view suffix) {
    return keys.contains(fmt::format("{}{}", tensor.key, suffix));
  });
}

std::vector<std::string> KeysOf(std::span<const GlobalTensor> tensors) {
  std::vector<std::string> keys;
  for (const GlobalTensor& tensor : tensors) keys.push_back(tensor.key);
  return keys;
}

// Names tensors by their `keys` in the source, which may have the names of wrappers in them or be
// renamed. What the source lacks keeps the name that it would have.
void NameAsInSource(std::span<const GlobalTensor> tensors, const std::vector<std::string>& keys,
                    std::vector<Problem>& problems) {
  std::map<std::string_view, std::string_view> names;
  for (std::size_t t = 0; t < tensors.size(); ++t) names.emplace(tensors[t].key, keys[t]);
  for (Problem& problem : problems) {
    const auto name = names.find(problem.tensor);
    if (name != names.end()) problem.tensor = name->second;
  }
}

// The naming of the family, other than `asked`, that knows most of the tensors that `asked` does
// not know. Nothing if each knows less than half of them. `num_unmapped`: how many tensors `asked`
// does not know.
std::optional<std::string> FindOtherNaming(const ModelSource& model, const std::string& asked,
                                           std::span<const GlobalTensor> tensors,
                                           std::size_t num_unmapped) {
  std::optional<std::string> best;
  std::size_t fewest = num_unmapped / 2 + 1;
  for (const layout::Naming& naming : model.family->namings) {
    if (naming.id == asked) continue;
    const Result<layout::SourceMatch> match =
        layout::MatchSource(*model.family, naming.id, model.layout_config(), tensors);
    if (!match.ok()) continue;
    const std::size_t unmapped = CountProblems(match->problems, ErrorKind::kUnmapped);
    if (unmapped >= std::min(fewest, num_unmapped)) continue;
    fewest = unmapped;
    best = naming.id;
  }
  return best;
}

Status WrongNaming(const ModelSource& model, const OpenModelOptions& options,
                   const std::string& naming) {
  const auto verb = options.verbs.find(naming);
  return Error(ErrorKind::kUsage, "this verb does not convert a source with such names")
      .File(model.checkpoint->path.string())
      .Expected(fmt::format("tensors named as {} names them", options.naming))
      .Actual(fmt::format("a {} checkpoint, named as {}", model.checkpoint->format->name, naming))
      .Hint(verb == options.verbs.end() ? std::string("no verb of this build converts it")
                                        : "ckpt-convert " + verb->second + " converts it");
}

Status UnknownNames(const ModelSource& model, const std::vector<std::string>& keys,
                    const std::vector<Problem>& problems, const KeyRemedy& remedy) {
  const auto missing = std::find_if(problems.begin(), problems.end(), [](const Problem& problem) {
    return problem.kind == ErrorKind::kMissing;
  });
  std::string_view hint =
      "weights alone are converted; a training state, or a wrapper around the model, has other "
      "names: ckpt-convert --mapping FILE describes them";
  if (model.assets.empty()) {
    hint =
        "the source has no config.json, and its arguments may say too little of the model: "
        "ckpt-convert --hf-assets DIR takes it from a directory";
  }
  return Error(ErrorKind::kUnmapped, "no tensor of the source has a name of the family")
      .File(model.checkpoint->path.string())
      .Expected(fmt::format("{} and others of {}",
                            missing == problems.end() ? "weights" : missing->tensor,
                            model.family->name))
      .Actual(NameSome(keys))
      .Hint(remedy.rename.empty() ? std::string(hint) : RenameHint(remedy));
}

// Expected and stored size of a dim.
struct SizePair {
  std::int64_t expected = 0;
  std::int64_t stored = 0;
  // NOLINTNEXTLINE(modernize-use-nullptr)
  friend auto operator<=>(const SizePair&, const SizePair&) = default;
};

std::optional<SizePair> MostFrequentDifference(const layout::SourceMatch& match,
                                               std::span<const GlobalTensor> tensors) {
  std::map<SizePair, std::size_t> times;
  for (std::size_t t = 0; t < match.positions.size(); ++t) {
    if (match.positions[t] == layout::SourceMatch::kAbsent) continue;
    const Dims& expected = match.layout.tensors[t].shape;
    const Dims& stored = tensors[match.positions[t]].shape;
    if (expected.size() != stored.size()) continue;
    for (std::size_t d = 0; d < expected.size(); ++d) {
      if (expected[d] != stored[d]) ++times[{expected[d], stored[d]}];
    }
  }
  const auto most = std::max_element(
      times.begin(), times.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == times.end() ? std::nullopt : std::optional(most->first);
}

// How many layers and experts the keys have. Keys number layers first, then experts: the counts are
// one more than the largest first, second, … number of a key.
std::vector<std::int64_t> CountNumbered(const std::vector<std::string>& keys) {
  std::vector<std::int64_t> counts;
  for (const std::string& key : keys) {
    std::size_t depth = 0;
    for (std::size_t begin = 0; begin <= key.size();) {
      const std::size_t end = std::min(key.find('.', begin), key.size());
      const auto number =
          ParseNumber<std::int64_t>(std::string_view(key).substr(begin, end - begin));
      if (number && *number < kMaxValueToTry) {
        if (counts.size() == depth) counts.push_back(0);
        counts[depth] = std::max(counts[depth], *number + 1);
        ++depth;
      }
      begin = end + 1;
    }
  }
  return counts;
}

// Numbers of layers, then of experts, that differ between the names expected and those stored.
std::vector<SizePair> DifferentCounts(const layout::SourceMatch& match,
                                      std::span<const GlobalTensor> tensors) {
  std::vector<std::string> keys;
  for (const layout::ResolvedTensor& tensor : match.layout.tensors) {
    keys.push_back(match.layout.Key(tensor));
  }
  const std::vector<std::int64_t> expected = CountNumbered(keys);
  const std::vector<std::int64_t> stored = CountNumbered(KeysOf(tensors));
  std::vector<SizePair> differences;
  for (std::size_t depth = 0; depth < std::min(expected.size(), stored.size()); ++depth) {
    if (expected[depth] != stored[depth]) differences.push_back({expected[depth], stored[depth]});
  }
  return differences;
}

struct Setting {
  std::string name;
  layout::Value value;
};

// Other values of single settings, the most likely first.
std::vector<Setting> OtherSettings(const ModelSource& model, const layout::SourceMatch& match,
                                   std::span<const GlobalTensor> tensors) {
  std::vector<Setting> likely;
  std::vector<Setting> other;
  const auto numbers = [&](const auto& use) {
    for (const auto& [name, value] : model.config) {
      const std::int64_t* number = value.AsInt();
      if (number != nullptr && *number > 0 && *number <= (std::int64_t{1} << 31)) {
        use(name, *number);
      }
    }
  };
  for (const SizePair& count : DifferentCounts(match, tensors)) {
    numbers([&](const std::string& name, std::int64_t number) {
      if (number == count.expected) likely.push_back({name, count.stored});
    });
  }
  for (const auto& [name, value] : model.config) {
    if (value.AsBool() != nullptr) likely.push_back({name, !*value.AsBool()});
  }
  if (const auto difference = MostFrequentDifference(match, tensors)) {
    numbers([&](const std::string& name, std::int64_t number) {
      if (number == difference->expected) {
        likely.push_back({name, difference->stored});
      } else if (number <= difference->expected && difference->stored <= kMaxValueToTry &&
                 number * difference->stored % difference->expected == 0) {
        other.push_back({name, number * difference->stored / difference->expected});
      }
    });
  }
  likely.insert(likely.end(), other.begin(), other.end());
  if (likely.size() > kMaxSettingsToTry) likely.resize(kMaxSettingsToTry);
  return likely;
}

// The setting with which all tensors fit, if another value of one setting is enough for that.
std::optional<Setting> FindWrongSetting(const ModelSource& model, const layout::SourceMatch& match,
                                        std::span<const GlobalTensor> tensors) {
  if (tensors.size() > kMaxTensorsToTry) return std::nullopt;
  for (const Setting& setting : OtherSettings(model, match, tensors)) {
    if (setting.value.AsInt() != nullptr && *setting.value.AsInt() <= 0) continue;
    layout::Configuration config = model.layout_config();
    config[setting.name] = setting.value;
    const Result<layout::SourceMatch> changed =
        layout::MatchSource(*model.family, match.layout.naming, config, tensors);
    if (changed.ok() && changed->problems.empty()) return setting;
  }
  return std::nullopt;
}

// Whether the arguments of the run that saved the checkpoint say so, too.
bool RunSays(const ModelSource& model, const Setting& setting) {
  const Result<layout::Configuration> args = ReadRunArgs(*model.checkpoint);
  if (!args.ok() || args->empty()) return false;
  const Result<layout::Configuration> said = ShapeFromMegatronArgs(*args);
  if (!said.ok()) return false;
  const auto found = said->find(setting.name);
  return found != said->end() && found->second == setting.value;
}

// Where the configuration stands.
std::string ConfigurationFile(const ModelSource& model) {
  const bool has_file = !model.assets.empty();
  return has_file ? (model.assets / kHfConfigName.data()).string()
                  : model.checkpoint->path.string();
}

// Whether there may be `count` layers or experts: as many tensors, or one with a dim of them.
bool MayCount(const CheckpointIndex& index, std::int64_t count) {
  return std::ssize(index.tensors()) >= count ||
         std::ranges::any_of(index.tensors(), [&](const GlobalTensor& tensor) {
           return std::ranges::find(tensor.shape, count) != tensor.shape.end();
         });
}

// Counts that the tensors may have: of numbers in their keys, and of what their first dims stack,
// the most frequent first.
std::vector<std::int64_t> LikelyCounts(std::span<const GlobalTensor> tensors) {
  std::vector<std::int64_t> counts = CountNumbered(KeysOf(tensors));
  std::map<std::int64_t, std::size_t> times;
  for (const GlobalTensor& tensor : tensors) {
    if (!tensor.shape.empty()) ++times[tensor.shape.front()];
  }
  std::vector<std::pair<std::size_t, std::int64_t>> sizes;
  sizes.reserve(times.size());
  for (const auto& [size, number] : times) sizes.emplace_back(number, size);
  std::ranges::sort(sizes, std::ranges::greater());
  for (const auto& [number, size] : sizes) counts.push_back(size);
  std::erase_if(counts, [](std::int64_t count) { return count < 1 || count > kMaxUsualCount; });
  if (counts.size() > kMaxCountsToTry) counts.resize(kMaxCountsToTry);
  return counts;
}

// The value of a setting with which everything fits, if it is among the likely ones.
std::optional<std::int64_t> FindCount(const ModelSource& model, const std::string& name,
                                      std::span<const GlobalTensor> tensors) {
  for (const std::int64_t count : LikelyCounts(tensors)) {
    layout::Configuration config = model.layout_config();
    config[name] = layout::Value(count);
    for (const layout::Naming& naming : model.family->namings) {
      const auto match = layout::MatchSource(*model.family, naming.id, config, tensors);
      if (match.ok() && match->problems.empty()) return count;
    }
  }
  return std::nullopt;
}

// "65536 (args.num_layers)", of a configuration that was made of a run's arguments.
std::string SaidValue(const ModelSource& model, std::int64_t value) {
  std::vector<std::string> names;
  if (model.assets.empty()) {
    const Result<layout::Configuration> args = ReadRunArgs(*model.checkpoint);
    if (args.ok()) {
      for (const auto& [name, said] : *args) {
        if (said == layout::Value(value)) names.push_back("args." + name);
      }
    }
  }
  return names.empty() ? fmt::format("{}", value)
                       : fmt::format("{} ({})", value, fmt::join(names, ", "));
}

Status WrongSetting(const ModelSource& model, const Setting& setting,
                    const std::vector<Problem>& problems) {
  std::vector<std::string> keys;
  keys.reserve(problems.size());
  for (const Problem& problem : problems) keys.push_back(problem.tensor);
  // If a tensor is missing, it may have been lost, and the setting may be right.
  const bool may_be_lost = CountProblems(problems, ErrorKind::kMissing) == problems.size();
  const bool has_more = CountProblems(problems, ErrorKind::kUnmapped) == problems.size();
  return Error(may_be_lost ? ErrorKind::kMissing
               : has_more  ? ErrorKind::kUnmapped
                           : ErrorKind::kShapeMismatch,
               fmt::format("the configuration contradicts the tensors: {}", setting.name))
      .File(ConfigurationFile(model))
      .Expected(may_be_lost ? fmt::format("{}, or {} ({})", FormatValue(setting.value),
                                          Counted(keys.size(), "more tensor"), NameSome(keys))
                            : fmt::format("{}, as {} of the tensors need it ({})",
                                          FormatValue(setting.value), keys.size(), NameSome(keys)))
      .Actual(FormatValue(model.config.at(setting.name)))
      .Hint(may_be_lost
                ? "the configuration is that of another model, or the source lost these tensors"
                : "the configuration is that of another model, or was changed after the save");
}

}  // namespace

Status RefuseQuantised(const ModelSource& model, const Offered& offered) {
  const auto configured = model.config.find("quantization_config.quant_method");
  const bool is_configured = configured != model.config.end();
  const auto packed = std::ranges::find_if(offered.tensors, [&](const GlobalTensor& tensor) {
    return !MethodByName(tensor.key).empty() ||
           (is_configured &&
            (MatchesGlob("*_packed", tensor.key) || ElementBytes(tensor.dtype) == 1));
  });
  if (packed == offered.tensors.end()) return OkStatus();
  const auto at = static_cast<std::size_t>(packed - offered.tensors.begin());
  const std::string method = is_configured ? "quant_method " + FormatValue(configured->second)
                                           : std::string(MethodByName(packed->key));
  return Error(ErrorKind::kUnsupported,
               fmt::format("the weights are quantised ({}), and nothing here decodes them", method))
      .File(model.checkpoint->path.string())
      .Tensor(model.source().index().tensors()[offered.positions[at]].key)
      .Actual(method + ", " + std::string(DTypeName(packed->dtype)))
      .Hint("convert a repository of the same model in bfloat16");
}

const GlobalTensor* FindQuantised(std::span<const GlobalTensor> tensors) {
  std::set<std::string_view> keys;
  for (const GlobalTensor& tensor : tensors) keys.insert(tensor.key);
  const auto found = std::ranges::find_if(tensors, [&](const GlobalTensor& tensor) {
    return !MethodByName(tensor.key).empty() || HasScales(tensor, keys);
  });
  return found == tensors.end() ? nullptr : &*found;
}

Status RefuseCounts(const ModelSource& model, std::span<const GlobalTensor> tensors) {
  const layout::Configuration config = model.layout_config();
  const CheckpointIndex& index = model.source().index();
  for (const layout::NumberedAxis& axis : layout::NumberedAxes(*model.family, config)) {
    if (axis.extent <= kMaxUsualCount) continue;
    for (const std::string& key : axis.keys) {
      const std::optional<std::int64_t> count = layout::FindInt(config, key);
      if (!count || *count <= kMaxUsualCount || MayCount(index, *count)) continue;
      const std::optional<std::int64_t> fits = FindCount(model, key, tensors);
      return Error(ErrorKind::kShapeMismatch,
                   fmt::format("the configuration contradicts the tensors: {}", key))
          .File(ConfigurationFile(model))
          .Expected(fits ? fmt::format("{}, as the tensors have", *fits)
                         : fmt::format("at most {}, a tensor for each, or as many as a dim has",
                                       index.tensors().size()))
          .Actual(SaidValue(model, *count))
          .Hint("the configuration is that of another model, or was changed after the save");
    }
  }
  return OkStatus();
}

Status ExplainMismatch(const ModelSource& model, const OpenModelOptions& options,
                       const layout::SourceMatch& match, const Offered& offered,
                       std::vector<Problem> problems) {
  const std::span<const GlobalTensor> tensors = offered.tensors;
  const std::vector<std::string> keys = KeysInSource(model, offered);
  NameAsInSource(tensors, keys, problems);
  const std::size_t unmapped = CountProblems(problems, ErrorKind::kUnmapped);
  if (!options.naming.empty() && unmapped != 0) {
    const auto naming = FindOtherNaming(model, options.naming, tensors, unmapped);
    if (naming) return WrongNaming(model, options, *naming);
  }
  const bool fits_nothing =
      unmapped != 0 &&
      std::all_of(match.positions.begin(), match.positions.end(),
                  [](std::uint32_t position) { return position == layout::SourceMatch::kAbsent; });
  const KeyRemedy remedy = FindKeyRemedy(model, options, tensors, keys, problems);
  if (fits_nothing) return UnknownNames(model, keys, problems, remedy);
  if (!remedy.rename.empty()) {
    return Error(ErrorKind::kUnmapped, "keys of the source have more in them than the family's")
        .File(model.checkpoint->path.string())
        .Actual(NameSome(UnmappedKeys(problems)))
        .Hint(RenameHint(remedy));
  }
  const bool is_one_lost = problems.size() == 1 && problems.front().kind == ErrorKind::kMissing;
  const std::optional<Setting> setting = FindWrongSetting(model, match, tensors);
  if (setting && (!is_one_lost || RunSays(model, *setting))) {
    return WrongSetting(model, *setting, problems);
  }
  // If one tensor is missing, its name says more than a setting with which it would not be needed.
  // For example, a base model is saved without its head.
  if (is_one_lost) return Status(std::move(problems));
  const std::vector<std::string> beside = GlobsBesideModel(match, tensors, keys, problems);
  if (!beside.empty() && problems.back().hint.empty()) {
    problems.back().hint =
        fmt::format("ckpt-convert {} leaves out what is no part of the model", DropOptions(beside));
  }
  const bool is_of_args = model.assets.empty() && options.config.empty();
  if (!is_of_args) return Status(std::move(problems));
  // What is stored otherwise may have another shape.
  CKPT_ASSIGN_OR_RETURN(const layout::Configuration args, ReadRunArgs(*model.checkpoint));
  CKPT_RETURN_IF_ERROR(CheckStoredAsOthersDo(args).File(model.checkpoint->path.string()));
  // Arguments that are absent have Megatron's defaults.
  if (problems.back().hint.empty()) {
    problems.back().hint =
        "the run's args, which describe the model, may lack some: ckpt-convert --hf-assets DIR "
        "takes the model from a config.json there";
  }
  return Status(std::move(problems));
}

}  // namespace ckpt

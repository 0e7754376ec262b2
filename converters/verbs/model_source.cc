#include "converters/verbs/model_source.h"

#include <algorithm>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "converters/config/hf_config.h"
#include "converters/families/family_registry.h"
#include "converters/verbs/internal/explain_mismatch.h"
#include "converters/verbs/internal/model_configuration.h"
#include "converters/verbs/internal/offered_tensors.h"
#include "core/base/glob.h"
#include "core/base/quote.h"
#include "core/base/units.h"
#include "core/base/warning.h"
#include "core/checkpoint/validate.h"
#include "core/io/path.h"
#include "core/layout/find_value.h"
#include "core/manifest/read_manifest.h"

namespace ckpt {
namespace {

constexpr std::uint64_t kMaxMappingBytes = 16 * kMiB;

// Decodes weights that the configuration calls quantised. It says nothing of the values then.
Status DecodeQuantised(ModelSource& model) {
  const std::string place = model.checkpoint->path.string();
  Result<DecodedWeights> decoded = DecodeWeights(model.checkpoint->source, model.config);
  if (!decoded.ok()) return std::move(decoded).status().File(place);
  model.decoded = *std::move(decoded);
  if (!model.decoded.source) return OkStatus();
  std::erase_if(model.config, [](const auto& entry) {
    return entry.first.starts_with(std::string(kQuantizationConfig) + ".");
  });
  model.warnings.push_back(
      Warning(ErrorKind::kDtypeMismatch,
              fmt::format("{} weights are stored as {}, and were decoded to bfloat16",
                          model.decoded.weights, model.decoded.method),
              place));
  return OkStatus();
}

Result<std::shared_ptr<const layout::LayoutTable>> BuiltInTable(
    const layout::Configuration& config) {
  CKPT_ASSIGN_OR_RETURN(const layout::LayoutTable* table, FindFamily(config));
  // Built-in tables live as long as the program.
  return std::shared_ptr<const layout::LayoutTable>(std::shared_ptr<void>(), table);
}

Status FindTable(Storage& storage, const OpenModelOptions& options, ModelSource& model) {
  if (options.mapping.empty()) {
    CKPT_ASSIGN_OR_RETURN(model.family, BuiltInTable(model.config));
    return OkStatus();
  }
  CKPT_ASSIGN_OR_RETURN(const std::string text,
                        ReadSmallFile(storage, options.mapping, kMaxMappingBytes));
  CKPT_ASSIGN_OR_RETURN(layout::LayoutTable table,
                        LoadMapping(text, options.mapping.string(), model.config));
  model.family = std::make_shared<const layout::LayoutTable>(std::move(table));
  return OkStatus();
}

// The values of the naming's choices that the configuration says under their names.
layout::Choices SaidBy(const layout::Configuration& config, const layout::Naming& naming) {
  layout::Choices said;
  for (const layout::Choice& choice : naming.choices) {
    const std::string* const value = layout::FindText(config, choice.name);
    if (value == nullptr) continue;
    if (std::ranges::find(choice.values, *value) != choice.values.end()) {
      said[choice.name] = *value;
    }
  }
  return said;
}

struct NamingMatch {
  layout::SourceMatch match;
  bool agrees = false;  // with what the configuration says of the form
};

// The keys of a model may fit several forms of a naming. What the configuration says comes first.
Result<NamingMatch> MatchNaming(const ModelSource& model, const layout::Naming& naming,
                                std::span<const GlobalTensor> tensors) {
  const layout::Configuration config = model.layout_config();
  const layout::Choices said = SaidBy(config, naming);
  if (!said.empty()) {
    Result<layout::SourceMatch> match =
        layout::MatchSource(*model.family, naming.id, config, tensors, said);
    if (match.ok() && match->problems.empty()) return NamingMatch{*std::move(match), true};
  }
  CKPT_ASSIGN_OR_RETURN(layout::SourceMatch match,
                        layout::MatchSource(*model.family, naming.id, config, tensors));
  return NamingMatch{std::move(match), said.empty()};
}

// The namings of the table, that of the container first.
std::vector<const layout::Naming*> NamingsToTry(const ModelSource& model) {
  std::vector<const layout::Naming*> namings;
  for (const layout::Naming& naming : model.family->namings) namings.push_back(&naming);
  std::stable_partition(namings.begin(), namings.end(), [&](const layout::Naming* naming) {
    return naming->id == model.checkpoint->format->usual_naming;
  });
  return namings;
}

// The naming that was `asked` for, or else the naming of the table that fits the keys best: the
// container alone does not decide it. Keys may fit several. Those of the container come first then,
// and next those of which the configuration says the same form as the keys.
Result<layout::SourceMatch> MatchBest(const ModelSource& model, const std::string& asked,
                                      std::span<const GlobalTensor> tensors) {
  std::optional<layout::SourceMatch> best;
  Status failure;
  for (const layout::Naming* const naming : NamingsToTry(model)) {
    if (!asked.empty() && naming->id != asked) continue;
    Result<NamingMatch> found = MatchNaming(model, *naming, tensors);
    if (!found.ok()) {
      failure.Add(std::move(found).status());
      continue;
    }
    const bool fits = found->match.problems.empty();
    const bool is_own = naming->id == model.checkpoint->format->usual_naming;
    if (fits && (is_own || found->agrees)) return std::move(found->match);
    if (!best || found->match.problems.size() < best->problems.size()) {
      best = std::move(found->match);
    }
  }
  if (!best && failure.ok()) {
    return Error(ErrorKind::kUnsupported, "the layout table does not describe this naming")
        .Actual(Quote(asked));
  }
  if (!best) return failure;
  return std::move(*best);
}

// Of a form that only sources have, nothing is said where the source does not have it.
void ForgetUsualForms(ModelSource& model) {
  layout::Choices& choices = model.match.layout.choices;
  for (const layout::Choice& choice :
       model.family->FindNaming(model.match.layout.naming)->choices) {
    const auto found = choices.find(choice.name);
    const bool is_usual =
        choice.is_of_sources && found != choices.end() && found->second == choice.values.front();
    if (is_usual) choices.erase(found);
  }
}

Status MatchWeights(const OpenModelOptions& options, ModelSource& model) {
  CKPT_ASSIGN_OR_RETURN(Offered offered, OfferTensors(options, model));
  CKPT_RETURN_IF_ERROR(RemoveWrappers(model.source().index(), offered));
  CKPT_RETURN_IF_ERROR(RefuseQuantised(model, offered));
  CKPT_RETURN_IF_ERROR(RefuseCounts(model, offered.tensors));
  CKPT_ASSIGN_OR_RETURN(layout::SourceMatch match,
                        MatchBest(model, options.naming, offered.tensors));
  const bool may_be_partial = options.allow_missing || HasPatterns(options);
  std::vector<Problem> problems;
  for (Problem& problem : match.problems) {
    if (may_be_partial && problem.kind == ErrorKind::kMissing) continue;
    problem.file = model.checkpoint->path.string();
    problems.push_back(std::move(problem));
  }
  if (!problems.empty()) {
    return ExplainMismatch(model, options, match, offered, std::move(problems));
  }
  const bool has_any = std::ranges::any_of(match.positions, [](std::uint32_t position) {
    return position != layout::SourceMatch::kAbsent;
  });
  if (!has_any && HasPatterns(options)) return NothingIsLeft(options, model);

  for (const layout::IgnoredKey& ignored : match.ignored) {
    const std::uint32_t position = offered.positions[ignored.position];
    const GlobalTensor& tensor = model.source().index().tensors()[position];
    CKPT_ASSIGN_OR_RETURN(const std::uint64_t bytes, CountBytes(tensor.shape, tensor.dtype));
    model.left_out.push_back({tensor.key, bytes, ignored.reason, ignored.is_bookkeeping});
  }
  for (const ObjectEntry& object : model.source().index().objects()) {
    const auto rule = std::find_if(
        match.layout.ignores.begin(), match.layout.ignores.end(),
        [&](const layout::IgnoreRule& r) { return MatchesGlob(r.pattern, object.key); });
    const bool is_known = rule != match.layout.ignores.end();
    model.left_out.push_back({object.key, StoredBytes(model.source(), object),
                              is_known ? rule->reason : "no part of the weights",
                              is_known && rule->is_bookkeeping});
  }
  for (std::uint32_t& position : match.positions) {
    if (position != layout::SourceMatch::kAbsent) position = offered.positions[position];
  }
  match.problems.clear();
  if (match.lacks_extra) model.config[model.family->extra->key] = std::int64_t{0};
  model.match = std::move(match);
  ForgetUsualForms(model);
  return OkStatus();
}

// Fills in `warnings`. What is wrong with an entry that the options leave out is a warning.
Status CheckIntact(const OpenModelOptions& options, ModelSource& model) {
  std::vector<Problem> errors;
  for (Problem& problem : ValidateIndex(model.source())) {
    const bool is_left_out = !problem.tensor.empty() && !KeyInTarget(options, problem.tensor);
    if (is_left_out) problem.severity = Severity::kWarning;
    const bool is_error = problem.severity == Severity::kError;
    (is_error ? errors : model.warnings).push_back(std::move(problem));
  }
  return Status(std::move(errors));
}

}  // namespace

std::uint64_t StoredBytes(const CheckpointSource& source, const ObjectEntry& object) {
  const std::uint64_t stored = object.size_bytes + source.HeldBytes(object);
  if (stored != 0) return stored;
  if (const auto pickled = source.ReadPickled(object); pickled.ok() && *pickled) {
    std::uint64_t bytes = (*pickled)->pickle.size();
    for (const Bytes& storage : (*pickled)->storages) bytes += storage.size();
    return bytes;
  }
  const auto rendered = source.ReadObject(object);
  return rendered.ok() ? rendered->json.size() : 0;
}

Result<ModelSource> OpenModel(Storage& storage, const Path& path, const OpenModelOptions& options) {
  CKPT_ASSIGN_OR_RETURN(OpenedCheckpoint checkpoint, OpenCheckpoint(storage, path, options.open));
  return UnderstandModel(storage, std::make_shared<const OpenedCheckpoint>(std::move(checkpoint)),
                         options);
}

namespace {

// The checkpoint with its manifest, checked.
Result<ModelSource> OpenIntact(Storage& storage, std::shared_ptr<const OpenedCheckpoint> checkpoint,
                               const OpenModelOptions& options) {
  ModelSource model;
  model.checkpoint = std::move(checkpoint);
  CKPT_RETURN_IF_ERROR(CheckIntact(options, model));
  model.manifest = model.checkpoint->manifest;
  if (!model.manifest) {
    CKPT_ASSIGN_OR_RETURN(model.manifest, ReadManifest(storage, model.checkpoint->path));
  }
  const Format& format = *model.checkpoint->format;
  if (!model.manifest && format.read_manifest != nullptr) {
    CKPT_ASSIGN_OR_RETURN(model.manifest, format.read_manifest(model.source()));
  }
  return model;
}

}  // namespace

Result<ModelSource> UnderstandModel(Storage& storage,
                                    std::shared_ptr<const OpenedCheckpoint> checkpoint,
                                    const OpenModelOptions& options) {
  CKPT_ASSIGN_OR_RETURN(ModelSource model, OpenIntact(storage, std::move(checkpoint), options));
  CKPT_RETURN_IF_ERROR(ReadConfiguration(storage, options, model));
  CKPT_RETURN_IF_ERROR(DecodeQuantised(model));
  CKPT_RETURN_IF_ERROR(FindTable(storage, options, model));
  CKPT_RETURN_IF_ERROR(MatchWeights(options, model));
  return model;
}

std::shared_ptr<const OpenedCheckpoint> SeeDecoded(
    Storage& storage, std::shared_ptr<const OpenedCheckpoint> checkpoint) {
  ModelSource model;
  model.checkpoint = std::move(checkpoint);
  if (!ReadConfiguration(storage, {}, model).ok() || !DecodeQuantised(model).ok() ||
      !model.decoded.source) {
    return model.checkpoint;
  }
  OpenedCheckpoint seen = *model.checkpoint;
  seen.source = model.decoded.source;
  return std::make_shared<const OpenedCheckpoint>(std::move(seen));
}

layout::Configuration ModelSource::layout_config() const {
  layout::Configuration all = config;
  all.insert(ignored.begin(), ignored.end());
  return all;
}

namespace {

// Under the source's own keys nothing compares a configuration with the tensors.
Status RefuseOtherAssets(const Path& given, const Path& own) {
  return Error(ErrorKind::kUsage,
               "--hf-assets would replace the configuration that the source has, and tensors that "
               "keep their keys show no mistake")
      .File(given.string())
      .Actual((own / std::string(kHfConfigName)).string())
      .Hint("leave ckpt-convert's --hf-assets out, or choose names with --naming");
}

}  // namespace

Result<ModelSource> TakeAsStored(Storage& storage,
                                 std::shared_ptr<const OpenedCheckpoint> checkpoint,
                                 const OpenModelOptions& options) {
  CKPT_ASSIGN_OR_RETURN(ModelSource model, OpenIntact(storage, std::move(checkpoint), options));
  CKPT_ASSIGN_OR_RETURN(model.assets, FindAssets(storage, *model.checkpoint, {}));
  if (!options.assets.empty()) {
    const bool has_other =
        !model.assets.empty() && CanonicalPath(model.assets) != CanonicalPath(options.assets);
    if (has_other) return RefuseOtherAssets(options.assets, model.assets);
    CKPT_ASSIGN_OR_RETURN(model.assets, FindAssets(storage, *model.checkpoint, options.assets));
  }
  // A repository that is no model by itself, such as an adapter, has other files, too.
  const Format& format = *model.checkpoint->format;
  if (model.assets.empty() && (format.keeps_shards() || !format.assets_directory.empty())) {
    const Path files = model.checkpoint->path / std::string(format.assets_directory);
    CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(files));
    if (stat.type == FileType::kDirectory) model.assets = files;
  }
  CKPT_ASSIGN_OR_RETURN(const Offered offered, OfferTensors(options, model));
  for (std::size_t t = 0; t < offered.tensors.size(); ++t) {
    model.stored.push_back({.key = offered.tensors[t].key, .position = offered.positions[t]});
  }
  for (const ObjectEntry& object : model.source().index().objects()) {
    model.left_out.push_back(
        {object.key, StoredBytes(model.source(), object), "the target holds tensors alone"});
  }
  return model;
}

Result<ModelSource> MatchModel(std::shared_ptr<const OpenedCheckpoint> checkpoint,
                               layout::Configuration config, const OpenModelOptions& options) {
  ModelSource model;
  model.checkpoint = std::move(checkpoint);
  model.config = std::move(config);
  CKPT_ASSIGN_OR_RETURN(model.family, BuiltInTable(model.config));
  CKPT_RETURN_IF_ERROR(MatchWeights(options, model));
  return model;
}

}  // namespace ckpt

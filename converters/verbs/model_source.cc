#include "converters/verbs/model_source.h"

#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "converters/config/hf_config.h"
#include "converters/config/megatron_args.h"
#include "converters/families/family_registry.h"
#include "converters/verbs/internal/explain_mismatch.h"
#include "core/base/glob.h"
#include "core/base/quote.h"
#include "core/base/units.h"
#include "core/base/warning.h"
#include "core/base/wildcard.h"
#include "core/checkpoint/no_match.h"
#include "core/checkpoint/validate.h"
#include "core/checkpoint/write_plan.h"
#include "core/layout/flatten_json.h"
#include "core/manifest/read_manifest.h"
#include "formats/registry/stored_run.h"

namespace ckpt {
namespace {

// Of an object, with the tensors in it. One that lies in a larger pickle has no bytes of its own: then
// those of a pickle of it alone count, or else of its text.
std::uint64_t BytesOf(const CheckpointSource& source, const ObjectEntry& object) {
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

constexpr std::uint64_t kMaxMappingBytes = 16 * kMiB;

bool MatchesAny(const std::vector<std::string>& patterns, std::string_view key) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return MatchesGlob(pattern, key); });
}

Result<bool> Exists(Storage& storage, const Path& path) {
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(path));
  return stat.type != FileType::kMissing;
}

// The first directory that has a config.json: the user's, the one inside the checkpoint, the
// checkpoint's own.
Result<Path> FindAssets(Storage& storage, const OpenedCheckpoint& checkpoint, const Path& given) {
  if (!given.empty()) {
    CKPT_ASSIGN_OR_RETURN(const bool exists, Exists(storage, given / kHfConfigName.data()));
    if (!exists) {
      return Error(ErrorKind::kNotFound, "the assets have no config.json").File(given.string());
    }
    return given;
  }
  CKPT_ASSIGN_OR_RETURN(const Path directory, ManifestDirectory(storage, checkpoint.path));
  const std::string_view folder = checkpoint.format->assets_directory;
  const Path inside = folder.empty() ? directory : directory / std::string(folder);
  for (const Path& candidate : {inside, directory}) {
    CKPT_ASSIGN_OR_RETURN(const bool exists, Exists(storage, candidate / kHfConfigName.data()));
    if (exists) return candidate;
  }
  return Path();
}

// The arguments of the run describe its shape. A config.json with another grouping of the heads can
// have the same tensor shapes, and would then permute rows without an error.
Status CheckAgainstArgs(const layout::Configuration& config, const layout::Configuration& args,
                        const std::string& file) {
  const Result<layout::Configuration> run = ConfigFromMegatronArgs(args);
  if (!run.ok()) return OkStatus();  // too few of them to say anything
  const auto number = [](const layout::Configuration& values,
                         const char* name) -> std::optional<std::int64_t> {
    const auto found = values.find(name);
    const std::int64_t* value = found == values.end() ? nullptr : found->second.AsInt();
    return value == nullptr ? std::nullopt : std::optional(*value);
  };
  const std::optional<std::int64_t> hidden = number(config, "hidden_size");
  const bool same_hidden = hidden == number(*run, "hidden_size");
  const std::optional<std::int64_t> heads = number(config, "num_attention_heads");
  Status status;
  for (const char* name : {"num_hidden_layers", "hidden_size", "num_attention_heads",
                           "num_key_value_heads", "head_dim", "vocab_size", "kv_lora_rank",
                           "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"}) {
    std::optional<std::int64_t> said = number(config, name);
    const std::optional<std::int64_t> stored = number(*run, name);
    const std::string_view key = name;
    if (!said && key == "num_key_value_heads") said = heads;
    // If the hidden size differs, values that follow from it are not reported again.
    if (!said && key == "head_dim" && same_hidden && hidden && heads && *heads > 0) {
      said = *hidden / *heads;
    }
    // A published vocabulary may have more rows than the run's tokenizer has words. It cannot have
    // fewer.
    const bool agrees =
        !said || !stored || *said == *stored || (key == "vocab_size" && *said > *stored);
    if (agrees) continue;
    status.Add(Error(ErrorKind::kValueMismatch,
                     fmt::format("config.json contradicts the run's own arguments: {}", name))
                   .File(file)
                   .Expected(std::to_string(*stored))
                   .Actual(std::to_string(*said)));
  }
  return status;
}

Status ReadConfiguration(Storage& storage, const OpenModelOptions& options, ModelSource& model) {
  CKPT_ASSIGN_OR_RETURN(model.assets, FindAssets(storage, *model.checkpoint, options.assets));
  CKPT_ASSIGN_OR_RETURN(const layout::Configuration args, ReadRunArgs(*model.checkpoint));
  if (!model.assets.empty()) {
    const Path path = model.assets / kHfConfigName.data();
    CKPT_RETURN_IF_ERROR(CheckFetched(storage, model.assets, {std::string(kHfConfigName)}));
    CKPT_ASSIGN_OR_RETURN(const std::string json, ReadSmallFile(storage, path, kMaxHfConfigBytes));
    CKPT_ASSIGN_OR_RETURN(model.config, ParseHfConfig(json, path.string(), options.model_type));
    if (!options.mapping.empty()) {
      CKPT_ASSIGN_OR_RETURN(model.ignored, layout::FlattenJson(json, path.string()));
      std::erase_if(model.ignored,
                    [&](const auto& entry) { return model.config.contains(entry.first); });
    }
    if (!args.empty()) CKPT_RETURN_IF_ERROR(CheckAgainstArgs(model.config, args, path.string()));
    // The published configuration does not say how far the run padded the vocabulary.
    const auto padded = args.find("padded_vocab_size");
    if (padded != args.end() && !padded->second.is_null()) model.config.insert(*padded);
  } else if (!args.empty()) {
    CKPT_ASSIGN_OR_RETURN(model.config, ConfigFromMegatronArgs(args));
  } else if (!options.config.empty()) {
    model.config = options.config;
  } else {
    return Error(ErrorKind::kNotFound, "no config.json says what model this is")
        .File(model.checkpoint->path.string())
        .Actual(fmt::format("a {} checkpoint alone", model.checkpoint->format->name))
        .Hint("ckpt-convert and ckpt-inspect plan take it from a directory with --hf-assets DIR");
  }
  DescribeForm(args, model.config);
  if (!options.model_type.empty()) model.config["model_type"] = options.model_type;
  if (options.with_vocabulary_padding) CountVocabularyPadding(model.config);
  return OkStatus();
}

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

// The tensors that are matched with the layout, under the names that the user wants for them.
struct Offered {
  std::vector<GlobalTensor> tensors;
  std::vector<std::uint32_t> positions;  // in the index
};

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

}  // namespace

std::optional<std::string> KeyInTarget(const OpenModelOptions& options, const std::string& key) {
  if (MatchesAny(options.drop, key) || !IsChosen(options, key)) return std::nullopt;
  const std::optional<RenamedKey> renamed = Renamed(options, key);
  return renamed ? renamed->key : key;
}

namespace {

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

// The values of the naming's choices that the configuration says under their names.
layout::Choices SaidBy(const layout::Configuration& config, const layout::Naming& naming) {
  layout::Choices said;
  for (const layout::Choice& choice : naming.choices) {
    const auto found = config.find(choice.name);
    const std::string* const value = found == config.end() ? nullptr : found->second.AsText();
    if (value == nullptr) continue;
    if (std::ranges::find(choice.values, *value) != choice.values.end()) {
      said[choice.name] = *value;
    }
  }
  return said;
}

// The keys of a model may fit several forms of a naming. What the configuration says comes first.
Result<layout::SourceMatch> MatchNaming(const ModelSource& model, const layout::Naming& naming,
                                        std::span<const GlobalTensor> tensors) {
  const layout::Configuration config = model.layout_config();
  const layout::Choices said = SaidBy(config, naming);
  if (!said.empty()) {
    Result<layout::SourceMatch> match =
        layout::MatchSource(*model.family, naming.id, config, tensors, said);
    if (match.ok() && match->problems.empty()) return match;
  }
  return layout::MatchSource(*model.family, naming.id, config, tensors);
}

// The naming that was `asked` for, or else the naming of the table that fits the keys best. The
// container alone does not decide it.
Result<layout::SourceMatch> MatchBest(const ModelSource& model, const std::string& asked,
                                      std::span<const GlobalTensor> tensors) {
  std::optional<layout::SourceMatch> best;
  Status failure;
  for (const layout::Naming& naming : model.family->namings) {
    if (!asked.empty() && naming.id != asked) continue;
    Result<layout::SourceMatch> match = MatchNaming(model, naming, tensors);
    if (!match.ok()) {
      failure.Add(std::move(match).status());
      continue;
    }
    if (!best || match->problems.size() < best->problems.size()) best = std::move(match).value();
    if (best->problems.empty()) break;
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
  CKPT_ASSIGN_OR_RETURN(const Offered offered, OfferTensors(options, model));
  CKPT_RETURN_IF_ERROR(RefuseQuantised(model, offered.tensors));
  CKPT_RETURN_IF_ERROR(RefuseCounts(model, offered.tensors));
  CKPT_ASSIGN_OR_RETURN(layout::SourceMatch match,
                        MatchBest(model, options.naming, offered.tensors));
  const bool may_be_partial =
      options.allow_missing || !options.only.empty() || !options.drop.empty();
  std::vector<Problem> problems;
  for (Problem& problem : match.problems) {
    if (may_be_partial && problem.kind == ErrorKind::kMissing) continue;
    problem.file = model.checkpoint->path.string();
    problems.push_back(std::move(problem));
  }
  if (!problems.empty()) {
    return ExplainMismatch(model, options, match, offered.tensors, std::move(problems));
  }

  for (const layout::IgnoredKey& ignored : match.ignored) {
    const GlobalTensor& tensor = offered.tensors[ignored.position];
    CKPT_ASSIGN_OR_RETURN(const std::uint64_t bytes, CountBytes(tensor.shape, tensor.dtype));
    model.left_out.push_back({tensor.key, bytes, ignored.reason, ignored.is_bookkeeping});
  }
  for (const ObjectEntry& object : model.source().index().objects()) {
    const auto rule = std::find_if(
        match.layout.ignores.begin(), match.layout.ignores.end(),
        [&](const layout::IgnoreRule& r) { return MatchesGlob(r.pattern, object.key); });
    const bool is_known = rule != match.layout.ignores.end();
    model.left_out.push_back({object.key, BytesOf(model.source(), object),
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

// Fills in `warnings`.
Status CheckIntact(ModelSource& model) {
  std::vector<Problem> errors;
  for (Problem& problem : ValidateIndex(model.source())) {
    const bool is_error = problem.severity == Severity::kError;
    (is_error ? errors : model.warnings).push_back(std::move(problem));
  }
  return Status(std::move(errors));
}

}  // namespace

Result<ModelSource> OpenModel(Storage& storage, const Path& path, const OpenModelOptions& options) {
  CKPT_ASSIGN_OR_RETURN(OpenedCheckpoint checkpoint, OpenCheckpoint(storage, path, options.open));
  return UnderstandModel(storage, std::make_shared<const OpenedCheckpoint>(std::move(checkpoint)),
                         options);
}

namespace {

// The checkpoint with its manifest, checked.
Result<ModelSource> OpenIntact(Storage& storage,
                               std::shared_ptr<const OpenedCheckpoint> checkpoint) {
  ModelSource model;
  model.checkpoint = std::move(checkpoint);
  CKPT_RETURN_IF_ERROR(CheckIntact(model));
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
  CKPT_ASSIGN_OR_RETURN(ModelSource model, OpenIntact(storage, std::move(checkpoint)));
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

Result<ModelSource> TakeAsStored(Storage& storage,
                                 std::shared_ptr<const OpenedCheckpoint> checkpoint,
                                 const OpenModelOptions& options) {
  CKPT_ASSIGN_OR_RETURN(ModelSource model, OpenIntact(storage, std::move(checkpoint)));
  CKPT_ASSIGN_OR_RETURN(model.assets, FindAssets(storage, *model.checkpoint, options.assets));
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
        {object.key, BytesOf(model.source(), object), "the target holds tensors alone"});
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

void DescribeForm(const layout::Configuration& args, layout::Configuration& config) {
  const auto impl = args.find("transformer_impl");
  if (impl != args.end() && impl->second.AsText() != nullptr) config.insert(*impl);
  const auto freq = args.find("moe_layer_freq");
  if (freq != args.end() && freq->second.AsList() != nullptr) {
    config.insert({"layer_keys", layout::Value("per_layer")});
  }
}

void CountVocabularyPadding(layout::Configuration& config) {
  const auto padded = config.find("padded_vocab_size");
  if (padded != config.end() && !padded->second.is_null()) config["vocab_size"] = padded->second;
}

void PadVocabulary(std::int64_t rows, layout::Configuration& config) {
  const auto tokens = config.find("vocab_size");
  const std::int64_t* const count = tokens == config.end() ? nullptr : tokens->second.AsInt();
  if (count != nullptr && rows > *count) config["padded_vocab_size"] = rows;
}

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
  ModelView view;
  CKPT_ASSIGN_OR_RETURN(view.layout,
                        layout::Resolve(*model.family, naming, model.layout_config(), choices));
  CKPT_ASSIGN_OR_RETURN(layout::Composition composition,
                        layout::Compose(model.match.layout, view.layout));
  layout::TargetDtypes dtypes = layout::InheritDtypes(composition, view.layout, model.match,
                                                      model.source().index().tensors());
  Status status(std::move(dtypes.problems));
  if (mixed == MixedDtypes::kRefuse) status.Add(Status(std::move(dtypes.mixed)));
  for (std::size_t t = 0; t < view.layout.tensors.size(); ++t) {
    const layout::ResolvedTensor& tensor = view.layout.tensors[t];
    TensorRecipe recipe{.nests = std::move(composition.nests[t]), .source_dtype = dtypes.dtypes[t]};
    std::size_t stored = 0;
    std::size_t absent = 0;
    for (layout::Nest& nest : recipe.nests) {
      if (nest.is_zero_fill()) continue;
      nest.source = model.match.positions[nest.source];
      ++(nest.source == layout::SourceMatch::kAbsent ? absent : stored);
    }
    if (stored == 0 && absent != 0) continue;
    if (absent != 0) {
      status.Add(Error(ErrorKind::kMissing, "part of a tensor is missing in the source")
                     .Tensor(view.layout.Key(tensor)));
      continue;
    }
    view.tensors.push_back(
        {.key = view.layout.Key(tensor), .dtype = recipe.source_dtype, .shape = tensor.shape});
    view.recipes.push_back(std::move(recipe));
    view.derived.push_back(tensor.derived);
    view.expected.push_back(tensor.expected);
  }
  if (!status.ok()) return status;
  return view;
}

}  // namespace ckpt

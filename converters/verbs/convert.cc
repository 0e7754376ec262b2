#include "converters/verbs/convert.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "converters/config/hf_config.h"
#include "converters/config/megatron_args.h"
#include "converters/verbs/internal/convert_run.h"
#include "converters/verbs/internal/dtype_policy.h"
#include "converters/verbs/internal/link_tensors.h"
#include "converters/verbs/internal/verify_conversion.h"
#include "converters/verbs/internal/vocabulary_padding.h"
#include "converters/verbs/model_digest.h"
#include "converters/verbs/side_files.h"
#include "converters/verbs/target_space.h"
#include "converters/verbs/training_state.h"
#include "core/base/endian.h"
#include "core/base/hash.h"
#include "core/base/quote.h"
#include "core/base/warning.h"
#include "core/exec/executor.h"
#include "core/io/staged_directory.h"
#include "core/io/staging_name.h"
#include "core/manifest/read_manifest.h"
#include "core/manifest/replaceable.h"
#include "core/plan/plan_check.h"
#include "core/repair/parity.h"
#include "formats/registry/registry.h"
#include "formats/registry/stored_run.h"

namespace ckpt {
namespace {

// Names, sizes and modification times of all files on which the result depends, and the places of
// the tensors in them.
Result<std::string> IdentifySource(Storage& storage, const ModelSource& model) {
  CKPT_ASSIGN_OR_RETURN(const Path directory, ManifestDirectory(storage, model.checkpoint->path));
  std::string identity = CanonicalPath(model.checkpoint->path).string();
  for (const std::string& file : model.source().index().files()) {
    CKPT_ASSIGN_OR_RETURN(const FileStat info, storage.Stat(directory / file));
    identity += fmt::format("\n{} {} {}", file, info.size_bytes, info.modified_ns);
  }
  Bytes places;
  for (const Chunk& chunk : model.source().index().chunks()) {
    AppendLe(chunk.file, places);
    AppendLe(chunk.offset_bytes, places);
    AppendLe(chunk.size_bytes, places);
  }
  identity += "\n" + HashHex(HashAlgorithm::kXxh3, places);
  return identity;
}

// The origin's shards without the keys that an earlier conversion left out. These are constants
// that every reader computes itself.
std::vector<ManifestShard> RemainingShards(const ModelSource& model,
                                           std::vector<ManifestShard> shards) {
  if (!model.manifest || !model.manifest->origin) return shards;
  const std::vector<std::string>& dropped = model.manifest->origin->dropped;
  const std::set<std::string_view> left_out(dropped.begin(), dropped.end());
  for (ManifestShard& shard : shards) {
    std::erase_if(shard.tensors, [&](const std::string& key) { return left_out.contains(key); });
  }
  return shards;
}

// Whether the origin's shards hold exactly these tensors. If so, the same shards are written again.
bool ShardsFit(const std::vector<ManifestShard>& shards, const std::vector<TargetTensor>& tensors) {
  std::vector<std::string_view> wanted;
  for (const TargetTensor& tensor : tensors) wanted.push_back(tensor.key);
  std::vector<std::string_view> had;
  for (const ManifestShard& shard : shards) {
    had.insert(had.end(), shard.tensors.begin(), shard.tensors.end());
  }
  std::sort(wanted.begin(), wanted.end());
  std::sort(had.begin(), had.end());
  return wanted == had;
}

// The target may store copies of other tensors. They are written only if the origin stored them.
void DropCopies(const std::vector<ManifestShard>& original, ModelView& view) {
  std::vector<std::string> had;
  for (const ManifestShard& shard : original) {
    had.insert(had.end(), shard.tensors.begin(), shard.tensors.end());
  }
  ModelView kept;
  kept.layout = std::move(view.layout);
  for (std::size_t t = 0; t < view.tensors.size(); ++t) {
    const bool stored =
        !view.derived[t] || std::find(had.begin(), had.end(), view.tensors[t].key) != had.end();
    if (!stored) continue;
    kept.tensors.push_back(std::move(view.tensors[t]));
    kept.recipes.push_back(std::move(view.recipes[t]));
    kept.derived.push_back(view.derived[t]);
  }
  view = std::move(kept);
}

// What the manifest of the target says about where it came from. A checkpoint that was converted
// before passes on what its own manifest says, so that the way back leads to the first origin.
ManifestOrigin DescribeOrigin(const ModelSource& model) {
  ManifestOrigin origin;
  const Format& format = *model.checkpoint->format;
  if (model.manifest && model.manifest->origin && !format.keeps_shards()) {
    origin = *model.manifest->origin;
  } else {
    origin.format = format.name;
    if (format.keeps_shards()) origin.shards = format.describe_shards(model.source());
    for (const auto& [name, value] : model.match.layout.choices) origin.choices[name] = value;
  }
  if (model.family) origin.choices["family"] = model.family->name;
  origin.dropped.clear();
  for (const LeftOutEntry& entry : model.left_out) origin.dropped.push_back(entry.key);
  return origin;
}

// When the target is replaced, the source must not be removed with it. And side files must not be
// taken from the result.
Status CheckPaths(const ConvertOptions& options, const ModelSource& model) {
  const Path target = CanonicalPath(options.target);
  const auto refuse = [&](std::string_view rule) {
    return Error(ErrorKind::kUsage, rule)
        .File(options.target.string())
        .Hint("choose another target");
  };
  if (IsWithin(CanonicalPath(options.source), target) ||
      IsWithin(CanonicalPath(model.checkpoint->path), target)) {
    return refuse("the target is the source, or contains it");
  }
  if (IsWithin(CanonicalPath(options.source), StagingOf(target))) {
    return refuse("the source lies where the target is prepared");
  }
  if (!model.assets.empty() && IsWithin(target, CanonicalPath(model.assets))) {
    return refuse("the target lies inside the directory that side files are taken from");
  }
  return OkStatus();
}

// Names relative to the checkpoint's directory, as the manifest counts them.
std::string NameInManifest(const std::string& name, const std::string& directory) {
  if (directory.empty()) return name;
  return name.starts_with(directory + "/") ? name.substr(directory.size() + 1) : "../" + name;
}

// What is written besides the files of the plan, and how many bytes everything takes.
Status CountFiles(Storage& storage, const ConvertOptions& options, PreparedConversion& prepared) {
  CKPT_ASSIGN_OR_RETURN(std::vector<ManifestFile> files,
                        PlannedFiles(storage, prepared.plan.write));
  for (ManifestFile& file : files) {
    if (prepared.to.container->is_one_file) continue;
    file.name = NameInManifest(file.name, prepared.checkpoint_directory);
  }
  prepared.needed_bytes = BytesWithParity(files, options.parity_group);
  if (options.parity_group != 0) {
    prepared.parity_files = GroupForParity(files, options.parity_group).size();
  }
  return OkStatus();
}

// Writes parity of all files, and then the manifest, which covers the files and the parity.
Status WriteManifest(Storage& storage, const PreparedConversion& prepared,
                     const ConvertOptions& options, const ExecuteResult& executed,
                     const Path& staging, ConvertReport& report) {
  Manifest manifest;
  manifest.tool = "ckptkit " CKPT_VERSION;
  manifest.origin = prepared.origin;
  manifest.files = executed.files;
  for (ManifestFile& file : manifest.files) {
    file.name = NameInManifest(file.name, prepared.checkpoint_directory);
  }
  const Path directory = staging / prepared.checkpoint_directory;
  if (options.parity_group != 0) {
    CKPT_ASSIGN_OR_RETURN(WrittenParity parity,
                          WriteParity(storage, directory, manifest.files,
                                      {.group_size = options.parity_group,
                                       .memory_budget_bytes = options.memory_budget_bytes,
                                       .threads = options.threads,
                                       .progress = options.progress,
                                       .stop = options.stop}));
    for (ManifestFile& file : parity.files) {
      ++report.parity_files;
      report.parity_bytes += file.size_bytes;
      manifest.files.push_back(std::move(file));
    }
    report.bytes_written += report.parity_bytes;
    manifest.parity = std::move(parity.groups);
    manifest.has_copy = true;
  }
  for (std::size_t t = 0; t < prepared.plan.write.tensors.size(); ++t) {
    manifest.tensors.push_back({prepared.plan.write.tensors[t].key, executed.tensor_xxh3[t]});
  }
  std::vector<std::string_view> names = {kManifestName};
  if (manifest.has_copy) names.push_back(kManifestCopyName);
  const std::string text = SerializeManifest(std::move(manifest));
  for (const std::string_view name : names) {
    const Path path = directory / std::string(name);
    CKPT_RETURN_IF_ERROR(storage.RemoveAll(path));
    CKPT_RETURN_IF_ERROR(WriteSmallFile(storage, path, AsBytes(text)));
  }
  return OkStatus();
}

// The type that most of the weights have.
DType MainDtype(const std::vector<TargetTensor>& tensors) {
  std::map<DType, std::int64_t> elements;
  for (const TargetTensor& tensor : tensors) elements[tensor.dtype] += NumElements(tensor.shape);
  const auto most =
      std::max_element(elements.begin(), elements.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == elements.end() ? DType::kFloat32 : most->first;
}

// Files of the repository that are not carried to the target and hold no weights of the model. If
// the configuration is from another directory, the files there are not part of the source.
std::vector<LeftOutEntry> LeftOutFiles(const ModelSource& model, std::vector<LeftOutEntry> files) {
  const bool is_own = model.checkpoint->format->assets_directory.empty() &&
                      CanonicalPath(model.assets) == CanonicalPath(model.checkpoint->path);
  if (!is_own) return {};
  const std::span<const std::string> read = model.source().index().files();
  std::erase_if(files, [&](const LeftOutEntry& file) {
    return std::find(read.begin(), read.end(), file.key) != read.end();
  });
  return files;
}

// Reads the objects of the source for a target that holds them as text. They are not left out then.
Status CarryObjects(ModelSource& model, WeightsRequest& request) {
  for (const ObjectEntry& object : model.source().index().objects()) {
    CKPT_ASSIGN_OR_RETURN(RenderedObject rendered, model.source().ReadObject(object));
    request.carried_objects.push_back(
        {.key = object.key, .type = std::move(rendered.type), .json = std::move(rendered.json)});
    std::erase_if(model.left_out,
                  [&](const LeftOutEntry& entry) { return entry.key == object.key; });
  }
  return OkStatus();
}

// What a target of one file holds besides tensors.
Status FillOneFile(const ConvertOptions& options, PreparedConversion& prepared,
                   WeightsRequest& request) {
  if (options.parity_group != 0) {
    return Error(ErrorKind::kUsage,
                 fmt::format("a {} file has no parity files", prepared.to.container->name));
  }
  request.file_name = options.target.filename().string();
  Manifest account;
  account.tool = "ckptkit " CKPT_VERSION;
  account.origin = prepared.origin;
  request.origin = SerializeManifest(std::move(account));
  CKPT_RETURN_IF_ERROR(CarryObjects(prepared.model, request));
  for (const WriteCopy& copy : request.side_files) {
    prepared.left_out_files.push_back(
        {.key = copy.name, .bytes = 0, .why = "the target is one file"});
  }
  for (const SideText& text : request.side_texts) {
    prepared.left_out_files.push_back(
        {.key = text.name, .bytes = text.content.size(), .why = "the target is one file"});
  }
  request.side_files.clear();
  request.side_texts.clear();
  return OkStatus();
}

// The files that are copied with the weights. Fills in `left_out_files`.
Status AddSideFiles(Storage& storage, const Format& target, PreparedConversion& prepared,
                    WeightsRequest& request) {
  const ModelSource& model = prepared.model;
  if (model.assets.empty()) return OkStatus();
  CKPT_ASSIGN_OR_RETURN(SideFiles files, ListSideFiles(storage, model.assets));
  CKPT_RETURN_IF_ERROR(CheckFetched(storage, model.assets, files.carried));
  prepared.left_out_files = LeftOutFiles(model, std::move(files.left_out));
  CarryOptions options = {.target = &target};
  const bool was_cast = prepared.origin.choices.contains("cast");
  const bool is_same_model = model.manifest && model.manifest->origin && !was_cast;
  if (!is_same_model) options.dtype = MainDtype(request.tensors);
  CKPT_ASSIGN_OR_RETURN(CarriedFiles carried,
                        CarrySideFiles(storage, model.assets, files.carried, options));
  request.side_files = std::move(carried.copies);
  request.side_texts = std::move(carried.texts);
  request.original_index = std::move(carried.index);
  return OkStatus();
}

// A regular expression that matches nothing is an error, because it is probably mistyped.
Status CheckKeepsSome(const std::string& keep_fp32, const DtypePolicy& dtypes,
                      const std::vector<TargetTensor>& tensors) {
  const bool keeps_some = std::ranges::any_of(
      tensors, [&](const TargetTensor& tensor) { return dtypes.Keeps(tensor.key, tensor.dtype); });
  if (keep_fp32.empty() || keeps_some) return OkStatus();
  return Error(ErrorKind::kUsage, "--keep-fp32 matches no float32 tensor of the target")
      .Actual(Quote(keep_fp32))
      .Hint("it is a regular expression, searched in the names that ckpt-convert --plan prints");
}

// Whether any source of the recipe has another dtype than `target`.
bool Casts(const CheckpointIndex& index, const TensorRecipe& recipe, DType target) {
  return std::any_of(recipe.nests.begin(), recipe.nests.end(), [&](const layout::Nest& nest) {
    return !nest.is_zero_fill() && index.tensors()[nest.source].dtype != target;
  });
}

// The source's tensors under the target's names.
Result<ModelView> ViewNames(const ConvertOptions& options, const PreparedConversion& prepared) {
  const ModelSource& model = prepared.model;
  if (!model.family) return ViewAsStored(model);
  CKPT_ASSIGN_OR_RETURN(const layout::Choices choices, ChoicesOf(prepared.to, model));
  Result<ModelView> viewed = ViewModel(model, prepared.to.NamingInUse(), choices,
                                       options.dtype ? MixedDtypes::kWiden : MixedDtypes::kRefuse);
  if (!viewed.ok()) {
    Status status = std::move(viewed).status();
    const bool is_mixed = !options.dtype && status.first().kind == ErrorKind::kDtypeMismatch;
    return is_mixed ? std::move(status).Hint(
                          "ckpt-convert --dtype TYPE gives all parts of a tensor one dtype")
                    : std::move(status);
  }
  return viewed;
}

// The same with the target's copies and dtypes. Fills in `origin` and `changes_dtype`, adds to
// `warnings`.
Result<ModelView> ViewTarget(const ConvertOptions& options, PreparedConversion& prepared) {
  const ModelSource& model = prepared.model;
  CKPT_ASSIGN_OR_RETURN(ModelView view, ViewNames(options, prepared));
  prepared.origin = DescribeOrigin(model);
  if (!prepared.to.container->writes_copies) DropCopies(prepared.origin.shards, view);
  CKPT_ASSIGN_OR_RETURN(const DtypePolicy dtypes,
                        DtypePolicy::Make(options.dtype, options.keep_fp32));
  CKPT_RETURN_IF_ERROR(CheckKeepsSome(options.keep_fp32, dtypes, view.tensors));
  std::vector<const TargetTensor*> kept;
  for (std::size_t t = 0; t < view.tensors.size(); ++t) {
    TargetTensor& tensor = view.tensors[t];
    if (dtypes.CannotCast(tensor.dtype)) kept.push_back(&tensor);
    tensor.dtype = dtypes.For(tensor.key, tensor.dtype);
    prepared.changes_dtype =
        prepared.changes_dtype || Casts(model.source().index(), view.recipes[t], tensor.dtype);
  }
  if (!kept.empty()) {
    prepared.warnings.push_back(
        Warning(ErrorKind::kUnsupported,
                fmt::format("--dtype does not convert {}; {} of {} tensors keep what they have",
                            DTypeName(kept.front()->dtype), kept.size(), view.tensors.size()),
                model.checkpoint->path.string(), kept.front()->key));
  }
  // The manifest records the dtype, so that a conversion back describes the weights as they are
  // now.
  if (prepared.changes_dtype) prepared.origin.choices["cast"] = "true";
  return view;
}

std::vector<EmptyObjects> ObjectsOf(const layout::ResolvedLayout& layout) {
  std::vector<EmptyObjects> objects;
  for (const layout::ResolvedObject& object : layout.objects) {
    objects.push_back({.key = layout.prefix + object.name, .grid = object.grid});
  }
  return objects;
}

// The run of the source, if the target shall hold it; `prepared.model` becomes the weights that the
// target holds as the model's.
Result<std::optional<TrainingState>> FindRun(Storage& storage, const ConvertOptions& options,
                                             PreparedConversion& prepared) {
  const ModelSource& model = prepared.model;
  const RunFormat* const run = prepared.to.container->run;
  if (run == nullptr || options.weights_only || !HoldsRun(*model.checkpoint)) {
    return std::optional<TrainingState>();
  }
  const auto refuse = [&](std::string_view option, std::string_view why) {
    return Error(ErrorKind::kUsage, fmt::format("{} is for weights: {}", option, why))
        .File(model.checkpoint->path.string())
        .Hint("ckpt-convert --weights-only leaves the rest of the training run out");
  };
  const OpenModelOptions& of_model = options.model;
  if (!of_model.only.empty() || !of_model.drop.empty() || !of_model.rename.empty()) {
    return refuse("--only, --drop or --rename", "a training run is converted as a whole");
  }
  if (options.dtype && run->main_weight_key == nullptr) {
    return refuse("--dtype", "the target has the weights once, and the run goes on with them");
  }
  CKPT_ASSIGN_OR_RETURN(TrainingState state, UnderstandTrainingState(storage, model.checkpoint,
                                                                     of_model, RunDetail::kWhole));
  if (run->main_weight_key == nullptr) {
    ModelSource exact = state.weights;
    exact.manifest = model.manifest;
    prepared.model = std::move(exact);
  }
  prepared.model.left_out = LeftOutOfRun(state, std::move(prepared.model.left_out));
  prepared.is_run = true;
  return std::optional(std::move(state));
}

// Every file of the target, with the run.
Result<PlannedCheckpoint> PlanRunTarget(Storage& storage, const ConvertOptions& options,
                                        const TrainingState& state, ModelView& view,
                                        PreparedConversion& prepared) {
  const Format& target = *prepared.to.container;
  WeightsRequest weights;
  weights.tensors = view.tensors;
  CKPT_RETURN_IF_ERROR(AddSideFiles(storage, target, prepared, weights));
  RunRequest request;
  CKPT_RETURN_IF_ERROR(AddOptimizer(state, target, view));
  CKPT_ASSIGN_OR_RETURN(request.run, RunForTarget(state, target, view, prepared.model.left_out));
  request.tensors = view.tensors;
  request.side_files = std::move(weights.side_files);
  request.objects = ObjectsOf(view.layout);
  request.generation = prepared.to.generation;
  request.files = options.files;
  request.max_file_bytes = options.max_shard_bytes;
  request.zstd_level = options.zstd_level;
  return PlanRunInRoot(target, std::move(request));
}

// Every file of the target. Adds to `warnings`.
Result<PlannedCheckpoint> PlanTarget(Storage& storage, const ConvertOptions& options,
                                     const Format& target, const ModelView& view,
                                     PreparedConversion& prepared) {
  const ModelSource& model = prepared.model;
  WeightsRequest request;
  request.tensors = view.tensors;
  request.objects = ObjectsOf(view.layout);
  request.generation = prepared.to.generation;
  request.files = options.files;
  request.zstd_level = options.zstd_level;
  request.max_file_bytes = options.max_shard_bytes;
  const bool repacks = options.max_shard_bytes != 0 || options.files != 0;
  std::vector<ManifestShard> shards = RemainingShards(model, prepared.origin.shards);
  if (!repacks && ShardsFit(shards, request.tensors)) request.shards = std::move(shards);
  CKPT_RETURN_IF_ERROR(AddSideFiles(storage, target, prepared, request));
  request.is_cast = prepared.changes_dtype;
  if (target.is_one_file) CKPT_RETURN_IF_ERROR(FillOneFile(options, prepared, request));
  if (options.link) {
    CKPT_ASSIGN_OR_RETURN(prepared.links, LinkTensors(model, options));
    request.links.emplace();
    for (const TargetTensor& tensor : request.tensors) {
      request.links->push_back(prepared.links.at(tensor.key));
    }
  }
  request.run_args = [&]() -> Result<NamedValues> {
    layout::Configuration described = model.config;
    for (const auto& [name, value] : view.layout.choices) described[name] = value;
    described["dtype"] = std::string(DTypeName(MainDtype(view.tensors)));
    described["ckpt_format"] = std::string(target.name);
    CKPT_ASSIGN_OR_RETURN(ModelArgs args, MegatronArgs(described));
    for (Problem& warning : args.warnings) {
      warning.file = kHfConfigName;
      prepared.warnings.push_back(std::move(warning));
    }
    return std::move(args.values);
  };
  return PlanWeights(target, std::move(request));
}

// The arguments of a run may describe another model than the configuration that is stored with it.
Status WarnOfAnotherModel(PreparedConversion& prepared) {
  const ModelSource& model = prepared.model;
  // Without a configuration, tensors keep the source's keys, whatever model they are.
  if (model.assets.empty() || model.config.empty()) return OkStatus();
  CKPT_ASSIGN_OR_RETURN(const layout::Configuration args, ReadRunArgs(*model.checkpoint));
  if (args.empty()) return OkStatus();
  const std::string file = (model.assets / kHfConfigName.data()).string();
  Result<std::vector<Problem>> differences = DifferencesFromArgs(model.config, args);
  if (!differences.ok()) {
    prepared.warnings.push_back(
        Warning(ErrorKind::kUnsupported,
                fmt::format("the configuration was not compared with the run's args: {}",
                            differences.status().first().message),
                file));
    return OkStatus();
  }
  for (Problem& difference : *differences) {
    difference.file = file;
    prepared.warnings.push_back(std::move(difference));
  }
  return OkStatus();
}

// The format that the source was made from.
Result<const Format*> OriginalContainer(const OpenedCheckpoint& checkpoint) {
  std::shared_ptr<const Manifest> manifest = checkpoint.manifest;
  if (!manifest && checkpoint.format->read_manifest != nullptr) {
    CKPT_ASSIGN_OR_RETURN(manifest, checkpoint.format->read_manifest(*checkpoint.source));
  }
  if (manifest && manifest->origin) return FindFormat(manifest->origin->format);
  return Error(ErrorKind::kUsage, "the source does not say what it was made from")
      .File(checkpoint.path.string())
      .Hint("choose a format with ckpt-convert --to CONTAINER");
}

// What a target that shows the source's tensors cannot do with them.
Status CheckLinkOptions(const ConvertOptions& options, const Target& to) {
  const auto refuse = [](std::string_view what) {
    return Error(ErrorKind::kUsage, fmt::format("--link copies no tensor, so {}", what))
        .Hint("leave ckpt-convert's --link out");
  };
  if (!to.container->can_link) return refuse(fmt::format("{} cannot have it", to.container->name));
  if (!to.NamingInUse().empty()) return refuse("tensors keep the source's keys");
  if (options.dtype) return refuse("none can be cast");
  if (options.zstd_level) return refuse("none can be compressed");
  if (options.files != 0 || options.max_shard_bytes != 0) return refuse("it makes one file");
  return OkStatus();
}

// Opens the source and decides on the target. Fills in `model` and `to`.
Status OpenConverted(Storage& storage, const ConvertOptions& options,
                     PreparedConversion& prepared) {
  OpenOptions open = options.model.open;
  open.verify = options.verify;
  CKPT_ASSIGN_OR_RETURN(OpenedCheckpoint opened, OpenCheckpoint(storage, options.source, open));
  prepared.to = options.to;
  if (prepared.to.container == nullptr) {
    CKPT_ASSIGN_OR_RETURN(prepared.to.container, OriginalContainer(opened));
  }
  prepared.to.container = FormatNamed(*prepared.to.container, prepared.to.naming);
  auto checkpoint = std::make_shared<const OpenedCheckpoint>(std::move(opened));
  if (options.link) CKPT_RETURN_IF_ERROR(CheckLinkOptions(options, prepared.to));
  // Where nothing says how tensors shall be called, they keep their keys.
  if (prepared.to.NamingInUse().empty()) {
    CKPT_ASSIGN_OR_RETURN(prepared.model,
                          TakeAsStored(storage, std::move(checkpoint), options.model));
  } else {
    CKPT_ASSIGN_OR_RETURN(prepared.model,
                          UnderstandModel(storage, std::move(checkpoint), options.model));
  }
  return OkStatus();
}

}  // namespace

Result<PreparedConversion> PrepareConversion(Storage& storage, const ConvertOptions& options) {
  PreparedConversion prepared;
  CKPT_RETURN_IF_ERROR(OpenConverted(storage, options, prepared));
  const ModelSource& model = prepared.model;
  prepared.warnings = model.warnings;
  CKPT_RETURN_IF_ERROR(WarnOfAnotherModel(prepared));
  CKPT_RETURN_IF_ERROR(CheckPaths(options, model));
  const Format* const target = prepared.to.container;
  if (target->needs_config && model.assets.empty()) {
    return Error(ErrorKind::kNotFound, "a Hugging Face repository needs a config.json")
        .File(model.checkpoint->path.string())
        .Hint(
            "pass ckpt-convert --hf-assets DIR, a directory with the model's config.json and "
            "tokenizer");
  }
  CKPT_ASSIGN_OR_RETURN(const std::optional<TrainingState> run,
                        FindRun(storage, options, prepared));
  CKPT_ASSIGN_OR_RETURN(ModelView view, ViewTarget(options, prepared));
  CKPT_ASSIGN_OR_RETURN(PlannedCheckpoint planned,
                        run ? PlanRunTarget(storage, options, *run, view, prepared)
                            : PlanTarget(storage, options, *target, view, prepared));
  prepared.target_tensors = view.tensors.size();
  for (const TargetTensor& tensor : view.tensors) {
    prepared.target_bytes += NumBytes(tensor.shape, tensor.dtype);
  }

  // The writer may have put tensors into another order.
  std::map<std::string, std::size_t> recipe_of;
  for (std::size_t t = 0; t < view.tensors.size(); ++t) recipe_of[view.tensors[t].key] = t;
  for (const TargetTensor& tensor : planned.plan.tensors) {
    prepared.plan.recipes.push_back(std::move(view.recipes[recipe_of.at(tensor.key)]));
  }
  prepared.plan.write = std::move(planned.plan);
  prepared.checkpoint_directory = target->is_one_file ? options.target.filename().string()
                                                      : std::move(planned.checkpoint_directory);
  CKPT_ASSIGN_OR_RETURN(prepared.plan.source_identity, IdentifySource(storage, model));
  CKPT_RETURN_IF_ERROR(CheckPlan(prepared.plan, model.source().index()));
  CKPT_RETURN_IF_ERROR(CountFiles(storage, options, prepared));
  return prepared;
}

namespace {

// Executes the plan, writes the manifest, verifies the result and publishes it.
Result<ConvertReport> Fill(Storage& storage, const PreparedConversion& prepared,
                           const ConvertOptions& options, StagedDirectory& staged) {
  CKPT_RETURN_IF_ERROR(CheckSourceManifest(storage, prepared, options));
  CKPT_RETURN_IF_ERROR(CheckCopies(prepared.model, options.memory_budget_bytes));
  CKPT_ASSIGN_OR_RETURN(const ExecuteResult executed,
                        Execute(prepared.plan, prepared.model.source(), storage, staged.path(),
                                {.memory_budget_bytes = options.memory_budget_bytes,
                                 .threads = options.threads,
                                 .resume = options.resume,
                                 .progress = options.progress,
                                 .stop = options.stop}));
  ConvertReport report;
  report.source_format = prepared.model.checkpoint->format->name;
  report.target_format = prepared.to.container->container();
  for (const GlobalTensor& tensor : prepared.model.source().index().tensors()) {
    ++report.source_tensors;
    CKPT_ASSIGN_OR_RETURN(const std::uint64_t bytes, CountBytes(tensor.shape, tensor.dtype));
    report.source_bytes += bytes;
  }
  report.target_tensors = prepared.target_tensors;
  report.target_bytes = prepared.target_bytes;
  report.bytes_read = executed.bytes_read;
  report.bytes_written = executed.bytes_written;
  report.cast_overflows = executed.cast_overflows;
  report.resumed_tensors = executed.resumed_tensors;
  report.dropped = prepared.model.left_out;
  report.dropped.insert(report.dropped.end(), prepared.left_out_files.begin(),
                        prepared.left_out_files.end());
  report.warnings = prepared.warnings;
  CKPT_ASSIGN_OR_RETURN(const std::vector<LeftOutEntry> used_padding,
                        FindUsedPadding(prepared.model, options.memory_budget_bytes));
  for (const LeftOutEntry& entry : used_padding) {
    report.dropped.push_back(entry);
    report.warnings.push_back(Warning(ErrorKind::kValueMismatch,
                                      "rows that pad the vocabulary are not zero and were left out",
                                      prepared.model.checkpoint->path.string(), entry.key));
  }

  if (!prepared.to.container->is_one_file) {
    CKPT_RETURN_IF_ERROR(
        WriteManifest(storage, prepared, options, executed, staged.path(), report));
  }
  if (options.verify) {
    Result<VerifiedDigests> verified =
        VerifyConversion(storage, prepared, options, executed, staged.path());
    if (!verified.ok()) {
      Status failed = std::move(verified).status();
      // Without the journal, --resume cannot reuse tensors that are wrong.
      if (!IsOfSystem(failed.kind())) failed.Add(storage.RemoveAll(staged.path() / kJournalName));
      return std::move(failed).While("verifying the result");
    }
    report.source_digest = std::move(verified->source);
    report.target_digest = std::move(verified->target);
  }
  CKPT_RETURN_IF_ERROR(storage.RemoveAll(staged.path() / kJournalName));
  CKPT_RETURN_IF_ERROR(staged.Publish());
  return report;
}

// Files beside a target of one file are not replaced: a reader of the old one could find parts of
// the new one in them.
Status CheckNoneBeside(const WritePlan& plan, Storage& storage, const Path& target) {
  Status status;
  for (const WriteFile& file : plan.files) {
    const Path path = target.parent_path() / file.name;
    if (path == target) continue;
    CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(path));
    if (stat.type == FileType::kMissing) continue;
    status.Add(Error(ErrorKind::kAlreadyExists, "a file that the target needs beside it exists")
                   .File(path.string())
                   .Hint("choose another name, or remove it yourself"));
  }
  return status;
}

// A file that is replaced must be one of the format.
Status CheckIsOf(const Format& format, Storage& storage, const Path& file) {
  CKPT_ASSIGN_OR_RETURN(Place place, LookAt(storage, file, false));
  place.path = Path("target");  // the bytes decide, whatever the name says
  CKPT_ASSIGN_OR_RETURN(const std::optional<Path> found, format.recognise(place));
  if (found) return OkStatus();
  return Error(ErrorKind::kAlreadyExists,
               fmt::format("the target is a file of another kind than {}", format.name))
      .File(file.string())
      .Hint("remove it yourself if it is not needed");
}

}  // namespace

Result<ConvertReport> RunConversion(Storage& storage, const PreparedConversion& prepared,
                                    const ConvertOptions& options) {
  if (prepared.to.container->is_one_file) {
    CKPT_RETURN_IF_ERROR(CheckNoneBeside(prepared.plan.write, storage, options.target));
  }
  CKPT_ASSIGN_OR_RETURN(
      StagedDirectory staged,
      StagedDirectory::Open(
          storage, options.target,
          {.if_target_exists = options.overwrite ? StagedDirectory::IfTargetExists::kReplace
                                                 : StagedDirectory::IfTargetExists::kFail,
           .if_staging_exists = options.resume ? StagedDirectory::IfStagingExists::kKeep
                                               : StagedDirectory::IfStagingExists::kDiscard,
           .may_replace =
               [&](Storage& there, const Path& target) {
                 return prepared.to.container->is_one_file
                            ? CheckIsOf(*prepared.to.container, there, target)
                            : CheckReplaceable(there, target, KnownRunRoot());
               },
           .publishes_one_file = prepared.to.container->is_one_file}));
  Result<ConvertReport> report = Fill(storage, prepared, options, staged);
  if (report.ok()) return report;
  const bool is_known = !prepared.plan.write.compression;
  return HowToResume(std::move(report).status(), options.target,
                     is_known ? prepared.needed_bytes : 0);
}

}  // namespace ckpt

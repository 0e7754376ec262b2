#include "converters/verbs/internal/plan_target.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "converters/config/hf_config.h"
#include "converters/config/megatron_args.h"
#include "converters/families/known_namings.h"
#include "converters/verbs/internal/add_side_files.h"
#include "converters/verbs/internal/carry_objects.h"
#include "converters/verbs/internal/convert_run.h"
#include "converters/verbs/internal/dtype_policy.h"
#include "converters/verbs/internal/link_tensors.h"
#include "converters/verbs/internal/model_configuration.h"
#include "core/base/counted.h"
#include "core/base/quote.h"
#include "core/base/warning.h"
#include "formats/registry/stored_run.h"

namespace ckpt {
namespace {

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
  wanted.reserve(tensors.size());
  for (const TargetTensor& tensor : tensors) wanted.push_back(tensor.key);
  std::vector<std::string_view> had;
  for (const ManifestShard& shard : shards) {
    had.insert(had.end(), shard.tensors.begin(), shard.tensors.end());
  }
  std::sort(wanted.begin(), wanted.end());
  std::sort(had.begin(), had.end());
  return wanted == had;
}

// The target may store copies of other tensors. They are written only if the origin stored them, or
// if there is none and readers want them.
void DropCopies(const std::vector<ManifestShard>& original, ModelView& view) {
  std::vector<std::string> had;
  for (const ManifestShard& shard : original) {
    had.insert(had.end(), shard.tensors.begin(), shard.tensors.end());
  }
  ModelView kept;
  kept.layout = std::move(view.layout);
  for (std::size_t t = 0; t < view.tensors.size(); ++t) {
    const bool stored = !view.derived[t] || (had.empty() && view.expected[t]) ||
                        std::find(had.begin(), had.end(), view.tensors[t].key) != had.end();
    if (!stored) continue;
    kept.tensors.push_back(std::move(view.tensors[t]));
    kept.recipes.push_back(std::move(view.recipes[t]));
    kept.derived.push_back(view.derived[t]);
    kept.expected.push_back(view.expected[t]);
  }
  view = std::move(kept);
}

// The files of the source, without the scales of weights that were decoded.
std::vector<ManifestShard> ShardsOf(const ModelSource& model) {
  std::vector<ManifestShard> shards =
      model.checkpoint->format->describe_shards(*model.checkpoint->source);
  for (ManifestShard& shard : shards) {
    std::erase_if(shard.tensors, [&](const std::string& key) {
      return model.source().index().FindTensor(key) == nullptr;
    });
  }
  return shards;
}

// What the manifest of the target says about where it came from. A checkpoint that was converted
// before passes on what its own manifest says, so that the way back leads to the first origin.
ManifestOrigin DescribeOrigin(const ModelSource& model) {
  ManifestOrigin origin;
  const Format& format = *model.checkpoint->format;
  // Files of a published model are an origin themselves, but not if they hold it under other names.
  const std::string& naming = model.match.layout.naming;
  const bool is_published = naming.empty() || naming == format.usual_naming;
  if (model.manifest && model.manifest->origin && !(format.keeps_shards() && is_published)) {
    origin = *model.manifest->origin;
  } else {
    origin.format = format.name;
    if (format.keeps_shards()) origin.shards = ShardsOf(model);
  }
  // A manifest that names no family is of tensors under the origin's own keys, of which nobody has
  // asked before what model they are.
  if (!origin.choices.contains("family")) {
    for (const auto& [name, value] : model.match.layout.choices) origin.choices[name] = value;
  }
  if (model.family) origin.choices["family"] = model.family->name;
  origin.dropped.clear();
  for (const LeftOutEntry& entry : model.left_out) origin.dropped.push_back(entry.key);
  return origin;
}

// A regular expression that matches nothing is an error, because it is probably mistyped. The
// library searches by calls within calls, one or more for each character.
Status CheckKeepsSome(const std::string& keep_fp32, const DtypePolicy& dtypes,
                      const std::vector<TargetTensor>& tensors) {
  if (keep_fp32.empty()) return OkStatus();
  for (const TargetTensor& tensor : tensors) {
    if (tensor.key.size() <= DtypePolicy::kMaxKeyBytes) continue;
    return Error(ErrorKind::kUnsupported, "--keep-fp32 cannot search so long a key")
        .Tensor(tensor.key.substr(0, DtypePolicy::kMaxKeyBytes))
        .Expected(fmt::format("at most {} bytes", DtypePolicy::kMaxKeyBytes))
        .Actual(fmt::format("{} bytes", tensor.key.size()));
  }
  const bool keeps_some = std::ranges::any_of(
      tensors, [&](const TargetTensor& tensor) { return dtypes.Keeps(tensor.key, tensor.dtype); });
  if (keeps_some) return OkStatus();
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

// A choice may be of no use to a model, and scripts make the same for all models.
void WarnOfIdleChoices(const layout::ResolvedLayout& layout, PreparedConversion& prepared) {
  const ModelSource& model = prepared.model;
  if (!model.family) return;
  for (const std::string& choice : prepared.to.asked) {
    if (ChoiceMatters(model, layout, choice)) continue;
    prepared.warnings.push_back(Warning(
        ErrorKind::kUsage,
        fmt::format("{} changes nothing: no tensor of this model is named by it", OptionOf(choice)),
        model.checkpoint->path.string()));
  }
}

// A file may be one tensor, which stands in no mapping. In the target it does, and a name for which
// nobody asked is told.
void WarnOfNewName(PreparedConversion& prepared) {
  const ModelSource& model = prepared.model;
  const CheckpointSource& source = model.source();
  if (!source.is_one_object() || source.index().tensors().size() != 1) return;
  const bool has_no_name = model.stored.size() == 1 && model.stored.front().key.empty();
  if (!has_no_name || source.Paths().contains("")) return;
  Problem warning = Warning(
      ErrorKind::kUnsupported,
      fmt::format("the file is one tensor without a name, which the target calls {}", Quote("")),
      model.checkpoint->path.string());
  warning.hint = "ckpt-convert --rename =NAME gives it another name";
  prepared.warnings.push_back(std::move(warning));
}

std::vector<EmptyObjects> ObjectsOf(const layout::ResolvedLayout& layout) {
  std::vector<EmptyObjects> objects;
  for (const layout::ResolvedObject& object : layout.objects) {
    objects.push_back({.key = layout.prefix + object.name, .grid = object.grid});
  }
  return objects;
}

// What is asked of any format.
WeightsRequest RequestOf(const ConvertOptions& options, const PreparedConversion& prepared,
                         const ModelView& view) {
  WeightsRequest request;
  request.tensors = view.tensors;
  request.objects = ObjectsOf(view.layout);
  request.forms = prepared.to.forms;
  request.files = options.files;
  request.max_file_bytes = options.max_shard_bytes;
  request.zstd_level = options.zstd_level;
  return request;
}

}  // namespace

Result<ModelView> ViewTarget(const ConvertOptions& options, PreparedConversion& prepared) {
  const ModelSource& model = prepared.model;
  CKPT_ASSIGN_OR_RETURN(ModelView view, ViewNames(options, prepared));
  WarnOfIdleChoices(view.layout, prepared);
  WarnOfNewName(prepared);
  prepared.origin = DescribeOrigin(model);
  const Format* const form = prepared.to.FormForRun();
  const bool writes_copies = (form != nullptr ? form : prepared.to.container)->writes_copies;
  if (!writes_copies) DropCopies(prepared.origin.shards, view);
  CKPT_ASSIGN_OR_RETURN(const DtypePolicy dtypes,
                        DtypePolicy::Make(options.dtype, options.keep_fp32));
  CKPT_RETURN_IF_ERROR(CheckKeepsSome(options.keep_fp32, dtypes, view.tensors));
  std::map<DType, std::size_t> kept;  // how many tensors of each dtype
  std::string first_kept;
  for (std::size_t t = 0; t < view.tensors.size(); ++t) {
    TargetTensor& tensor = view.tensors[t];
    if (dtypes.CannotCast(tensor.dtype)) {
      if (kept.empty()) first_kept = tensor.key;
      ++kept[tensor.dtype];
    }
    tensor.dtype = dtypes.For(tensor.key, tensor.dtype);
    prepared.changes_dtype =
        prepared.changes_dtype || Casts(model.source().index(), view.recipes[t], tensor.dtype);
  }
  if (!kept.empty()) {
    std::vector<std::string> counts;
    for (const auto& [dtype, count] : kept) {
      counts.push_back(fmt::format("{} ({})", DTypeName(dtype), Counted(count, "tensor")));
    }
    prepared.warnings.push_back(
        Warning(ErrorKind::kUnsupported,
                fmt::format("--dtype does not convert {}; these of {} tensors keep what they have",
                            fmt::join(counts, ", "), view.tensors.size()),
                model.checkpoint->path.string(), first_kept));
  }
  // The manifest records the dtype, so that a conversion back describes the weights as they are
  // now.
  if (prepared.changes_dtype) prepared.origin.choices["cast"] = "true";
  if (model.decoded.source) prepared.origin.choices["decoded"] = model.decoded.method;
  return view;
}

Result<PlannedCheckpoint> PlanRunTarget(Storage& storage, const ConvertOptions& options,
                                        const TrainingState& state, ModelView& view,
                                        PreparedConversion& prepared) {
  const Format& target = *prepared.to.container;
  CKPT_RETURN_IF_ERROR(CheckForms(target.name, prepared.to.Options(), prepared.to.forms));
  WeightsRequest weights = RequestOf(options, prepared, view);
  CKPT_RETURN_IF_ERROR(AddSideFiles(storage, target, prepared, weights));
  if (target.is_one_file) CKPT_RETURN_IF_ERROR(FillOneFile(storage, options, prepared, weights));
  const Format& form = *prepared.to.FormForRun();
  RunRequest request;
  CKPT_RETURN_IF_ERROR(AddOptimizer(state, form, prepared.to.forms, view));
  CKPT_ASSIGN_OR_RETURN(request.run, RunForTarget(state, form, view, prepared.model.left_out));
  NameModules(prepared.to.choices, request.run);
  if (form.run->warn != nullptr) {
    for (Problem& warning : form.run->warn(request.run, prepared.to.forms)) {
      warning.file = prepared.model.checkpoint->path.string();
      prepared.warnings.push_back(std::move(warning));
    }
  }
  CKPT_ASSIGN_OR_RETURN(request.carried,
                        CarryObjectsOfRun(state, *form.run, prepared.model.left_out));
  CKPT_RETURN_IF_ERROR(KeepCarried(target, prepared, request));
  CKPT_RETURN_IF_ERROR(CarryAttributes(target, prepared.model, weights));
  weights.tensors = view.tensors;  // those of the optimizer, too
  if (target.run == nullptr) {
    return PlanEntriesOfRun(form, std::move(request), target, std::move(weights));
  }
  request.tensors = std::move(weights.tensors);
  request.side_files = std::move(weights.side_files);
  request.objects = std::move(weights.objects);
  request.forms = std::move(weights.forms);
  request.files = weights.files;
  request.max_file_bytes = weights.max_file_bytes;
  request.zstd_level = weights.zstd_level;
  CKPT_ASSIGN_OR_RETURN(PlannedCheckpoint planned, PlanRunInRoot(target, std::move(request)));
  AddSideTexts(target, planned.checkpoint_directory, weights.side_texts, planned.plan);
  return planned;
}

Result<PlannedCheckpoint> PlanTarget(Storage& storage, const ConvertOptions& options,
                                     const Format& target, const ModelView& view,
                                     PreparedConversion& prepared) {
  const ModelSource& model = prepared.model;
  WeightsRequest request = RequestOf(options, prepared, view);
  const bool repacks = options.max_shard_bytes != 0 || options.files != 0;
  std::vector<ManifestShard> shards = RemainingShards(model, prepared.origin.shards);
  for (const ManifestShard& shard : shards) request.original_files.push_back(shard.file);
  // A library may look for the names of files that cannot be written again as they are.
  if (shards.empty()) {
    const std::span<const std::string> files = model.source().index().files();
    request.original_files.assign(files.begin(), files.end());
  }
  if (!repacks && ShardsFit(shards, request.tensors)) request.shards = std::move(shards);
  if (target.texts_of_shards) {
    CKPT_RETURN_IF_ERROR(
        CountTextsOfShards(target.texts_of_shards(request.shards), prepared.model));
  }
  CKPT_RETURN_IF_ERROR(AddSideFiles(storage, target, prepared, request));
  request.is_cast = prepared.changes_dtype;
  if (target.is_one_file) CKPT_RETURN_IF_ERROR(FillOneFile(storage, options, prepared, request));
  // Beside tensors under other names, a loader would take them for those of another run.
  if (target.holds_objects && (target.keeps_objects_apart || !model.family)) {
    CKPT_RETURN_IF_ERROR(CarryObjects(target, options.model, prepared.model, request));
  }
  CKPT_RETURN_IF_ERROR(CheckRenamedObjects(options.model, model, request));
  if (target.nested_keys != NestedKeys::kNone && !model.family) {
    KeepPaths(target, options.model, prepared, request);
  }
  CKPT_RETURN_IF_ERROR(CarryAttributes(target, prepared.model, request));
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
    CKPT_ASSIGN_OR_RETURN(const layout::Configuration run, ArgsOfRun(model));
    // Without a config.json, the configuration was made from the run's arguments, and says less.
    if (model.assets.empty()) {
      return ArgsForWeights(run, std::move(args.values), prepared.model.left_out);
    }
    CKPT_RETURN_IF_ERROR(
        CheckStoredAsOthersDo(run)
            .File(model.checkpoint->path.string())
            .Hint("no config.json says it: without hf_assets the run's own arguments go along"));
    for (Problem& warning : args.warnings) {
      warning.file = kHfConfigName;
      prepared.warnings.push_back(std::move(warning));
    }
    return std::move(args.values);
  };
  return PlanWeights(target, std::move(request));
}

}  // namespace ckpt

// PrepareConversion: opens the source, decides on the target, plans and checks the plan.
#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "converters/config/hf_config.h"
#include "converters/config/megatron_args.h"
#include "converters/families/known_namings.h"
#include "converters/verbs/convert.h"
#include "converters/verbs/internal/check_options.h"
#include "converters/verbs/internal/convert_run.h"
#include "converters/verbs/internal/model_configuration.h"
#include "converters/verbs/internal/name_in_manifest.h"
#include "converters/verbs/internal/offered_tensors.h"
#include "converters/verbs/internal/plan_target.h"
#include "converters/verbs/source_paths.h"
#include "converters/verbs/target_space.h"
#include "converters/verbs/training_state.h"
#include "core/base/endian.h"
#include "core/base/hash.h"
#include "core/base/warning.h"
#include "core/io/staging_name.h"
#include "core/layout/match.h"
#include "core/manifest/read_manifest.h"
#include "core/plan/plan_check.h"
#include "core/plan/plan_recipes.h"
#include "core/repair/parity.h"
#include "core/training/run_settings.h"
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

// When the target is replaced, the source must not be removed with it. And side files must not be
// taken from the result.
Status CheckPaths(Storage& storage, const ConvertOptions& options,
                  const PreparedConversion& prepared) {
  const ModelSource& model = prepared.model;
  if (options.target.empty()) return Error(ErrorKind::kUsage, "the target's name is empty");
  const Path target = CanonicalPath(options.target);
  const auto refuse = [&](std::string_view rule) {
    return Error(ErrorKind::kUsage, rule)
        .File(options.target.string())
        .Hint("choose another target");
  };
  const std::string name = options.target.filename().string();
  if (prepared.to.container->is_one_file && (name.empty() || name == "." || name == "..")) {
    return refuse("the target is to be one file, and its name is that of a directory");
  }
  CKPT_ASSIGN_OR_RETURN(const std::vector<Path> read,
                        SourcePaths(storage, options.source, *model.checkpoint));
  const auto any_is_in = [&](const Path& directory) {
    return std::ranges::any_of(read, [&](const Path& path) { return IsWithin(path, directory); });
  };
  if (any_is_in(target)) return refuse("the target is the source, or contains it");
  if (any_is_in(StagingOf(target))) return refuse("the source lies where the target is prepared");
  if (!model.assets.empty() && IsWithin(target, CanonicalPath(model.assets))) {
    return refuse("the target lies inside the directory that side files are taken from");
  }
  const std::string_view suffix = prepared.to.container->file_suffix;
  if (!suffix.empty() && name.ends_with(suffix)) {
    return Error(ErrorKind::kUsage,
                 "the target is to be a directory, and its name is that of a file")
        .File(options.target.string())
        .Hint(fmt::format("leave {} out of its name: the files in it have that", suffix));
  }
  return OkStatus();
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

// A container of any tensors holds a run as it is stored, and the weights alone under names that an
// optimizer has none of.
void WarnOfNaming(PreparedConversion& prepared) {
  const Format& container = *prepared.to.container;
  if (prepared.to.NamingInUse().empty() || !container.holds_objects) return;
  Problem warning = Warning(ErrorKind::kUnsupported,
                            fmt::format("under the names of {} the target holds the weights of the "
                                        "run alone",
                                        prepared.to.NamingInUse()),
                            prepared.model.checkpoint->path.string());
  warning.hint = fmt::format(
      "ckpt-convert --to {} keeps the optimizer without --naming, under the names that the source "
      "has, and with the --naming of a format that stores runs",
      container.name);
  prepared.warnings.push_back(std::move(warning));
}

// Whether the target has the rows that pad the vocabulary of the source's run.
bool KeepsPadding(const ConvertOptions& options, const Target& to,
                  const OpenedCheckpoint& checkpoint) {
  const Format* const form = to.FormForRun();
  return form != nullptr && form->run->keeps_padding && !options.weights_only &&
         HoldsRun(checkpoint);
}

// Those that nobody asks for are of Megatron's older checkpoints, or a mapping's.
bool IsOfMegatron(std::string_view naming) {
  const KnownNaming* const known = FindNaming(naming);
  return known == nullptr || known->is_of_megatron;
}

// Of a weight and its copies the target has one state: that of the copies is listed, and compared
// with it while the target is written.
void LeaveCopiesOut(const TrainingState& state, PreparedConversion& prepared) {
  for (const ModelSource& moment : state.moments) {
    const layout::SourceMatch& match = moment.match;
    if (match.derived_present.empty()) continue;
    for (const std::uint32_t copy : match.derived_present) {
      const GlobalTensor& tensor = moment.source().index().tensors()[match.positions[copy]];
      prepared.model.left_out.push_back(
          {tensor.key, NumBytes(tensor.shape, tensor.dtype),
           "the same as what the optimizer keeps for the weight to which it is tied"});
    }
    prepared.moments_with_copies.push_back(moment);
  }
}

// Members of an optimizer's group go along, but under Megatron's own names they would say something
// else there. OneCycleLR has a `max_lr` and a `min_lr`.
void WarnOfReplacedMembers(const TrainingRun& run, PreparedConversion& prepared) {
  if (!IsOfMegatron(prepared.to.NamingInUse())) return;
  const ParamGroup any;
  std::set<std::string, std::less<>> own;
  VisitGroup(any, [&](std::string_view name, const auto& /*setting*/) { own.emplace(name); });
  std::set<std::string> replaced;
  for (const ParamGroup& group : run.groups) {
    for (const auto& [name, value] : group.others) {
      if (own.contains(name)) replaced.insert(fmt::format("{} {}", name, FormatValue(value)));
    }
  }
  if (replaced.empty()) return;
  Problem warning = Warning(
      ErrorKind::kUnsupported,
      fmt::format("members of the optimizer's groups have names that mean something else in "
                  "Megatron's, and were left out: {}",
                  fmt::join(replaced, ", ")),
      prepared.model.checkpoint->path.string());
  warning.hint = "ckpt-convert --to dcp --naming fsdp2 keeps them";
  prepared.warnings.push_back(std::move(warning));
}

Status NeedsDropped(const OpenedCheckpoint& checkpoint, const std::string& key) {
  return Error(ErrorKind::kUsage,
               "--drop leaves out a part of the training run, which is converted as a whole")
      .File(checkpoint.path.string())
      .Tensor(key)
      .Hint("ckpt-convert --weights-only leaves the rest of the training run out");
}

// A run is converted as a whole: what --drop leaves out lies beside it, and no weight is missing.
Status CheckDropped(Storage& storage, const OpenModelOptions& options, const TrainingState& state) {
  if (options.drop.empty()) return OkStatus();
  const OpenedCheckpoint& checkpoint = *state.weights.checkpoint;
  // Without the weights that are left out, the model may have been taken for a smaller one.
  ModelSource whole;
  whole.checkpoint = state.weights.checkpoint;
  CKPT_RETURN_IF_ERROR(ReadConfiguration(storage, options, whole));
  const CheckpointIndex& index = checkpoint.source->index();
  std::vector<GlobalTensor> tensors(index.tensors().begin(), index.tensors().end());
  for (GlobalTensor& tensor : tensors) tensor.key = WithoutWrappers(tensor.key);
  CKPT_ASSIGN_OR_RETURN(
      layout::SourceMatch match,
      layout::MatchSource(*state.weights.family, state.weights.match.layout.naming,
                          whole.layout_config(), tensors));
  const std::set<std::uint32_t> weights(match.positions.begin(), match.positions.end());
  for (std::uint32_t t = 0; t < tensors.size(); ++t) {
    const std::string& key = index.tensors()[t].key;
    const bool is_of_run = weights.contains(t) || state.tensors.contains(key);
    if (is_of_run && !KeyInTarget(options, key)) return NeedsDropped(checkpoint, key);
  }
  for (const ObjectEntry& object : index.objects()) {
    if (state.IsOfRun(object.key) && !KeyInTarget(options, object.key)) {
      return NeedsDropped(checkpoint, object.key);
    }
  }
  std::erase_if(match.problems, [&](const Problem& problem) {
    return options.allow_missing || problem.kind != ErrorKind::kMissing;
  });
  return Status(std::move(match.problems)).File(checkpoint.path.string());
}

// Objects that --drop names do not go along.
void NoteDropped(const OpenModelOptions& options, std::vector<LeftOutEntry>& left_out) {
  for (LeftOutEntry& entry : left_out) {
    if (KeyInTarget(options, entry.key)) continue;
    entry.why = kLeftOutOnRequest;
    entry.is_bookkeeping = false;
  }
}

// Tensors get other names, and not what says to which parameter the tensors of an optimizer belong
// and how it updates them: under an optimizer's names they would be left out as one that is not
// understood.
Status CheckRenamesNoOptimizer(const OpenModelOptions& options, const ModelSource& model) {
  for (const GlobalTensor& tensor : model.source().index().tensors()) {
    const std::optional<std::string> key = KeyInTarget(options, tensor.key);
    if (!key || *key == tensor.key) continue;
    IndexBuilder builder;
    builder.AddTensor(*key, tensor.dtype, tensor.shape);
    CKPT_ASSIGN_OR_RETURN(const CheckpointIndex renamed, builder.Build());
    if (!HoldsOptimizer(renamed)) continue;
    return Error(ErrorKind::kUsage,
                 "--rename gives weights other names, and no optimizer: its settings keep theirs")
        .File(model.checkpoint->path.string())
        .Tensor(tensor.key)
        .Actual(*key)
        .Hint("ckpt-convert --weights-only leaves the optimizer out");
  }
  return OkStatus();
}

// The run of the source, if the target shall hold it; `prepared.model` becomes the weights that the
// target holds as the model's.
Result<std::optional<TrainingState>> FindRun(Storage& storage, const ConvertOptions& options,
                                             PreparedConversion& prepared) {
  const ModelSource& model = prepared.model;
  const Format* const form = prepared.to.FormForRun();
  if (options.weights_only) return std::optional<TrainingState>();
  if (!HoldsRun(*model.checkpoint)) {
    if (form != nullptr) CKPT_RETURN_IF_ERROR(CheckRenamesNoOptimizer(options.model, model));
    return std::optional<TrainingState>();
  }
  if (form == nullptr) {
    WarnOfNaming(prepared);
    return std::optional<TrainingState>();
  }
  const auto refuse = [&](std::string_view option, std::string_view why) {
    return Error(ErrorKind::kUsage, fmt::format("{} is for weights: {}", option, why))
        .File(model.checkpoint->path.string())
        .Hint("ckpt-convert --weights-only leaves the rest of the training run out");
  };
  const OpenModelOptions& of_model = options.model;
  if (!of_model.only.empty() || !of_model.rename.empty()) {
    return refuse("--only or --rename", "a training run is converted as a whole");
  }
  if (options.dtype && form->run->main_weight_key == nullptr) {
    return refuse("--dtype", "the target has the weights once, and the run goes on with them");
  }
  OpenModelOptions opened = of_model;
  opened.with_vocabulary_padding = prepared.keeps_padding;
  CKPT_ASSIGN_OR_RETURN(TrainingState state, UnderstandTrainingState(storage, model.checkpoint,
                                                                     opened, RunDetail::kWhole));
  CKPT_RETURN_IF_ERROR(CheckDropped(storage, opened, state));
  if (form->run->main_weight_key == nullptr) {
    ModelSource exact = state.weights;
    exact.manifest = model.manifest;
    prepared.model = std::move(exact);
  }
  prepared.model.left_out = LeftOutOfRun(state, std::move(prepared.model.left_out));
  NoteDropped(of_model, prepared.model.left_out);
  LeaveCopiesOut(state, prepared);
  if (!IsStoredAs(*model.checkpoint, *form->run)) {
    std::ranges::copy(state.warnings, std::back_inserter(prepared.warnings));
  }
  WarnOfReplacedMembers(state.run, prepared);
  std::ranges::copy(state.assumptions, std::back_inserter(prepared.warnings));
  prepared.is_run = true;
  return std::optional(std::move(state));
}

// Of weights alone: that no form of an optimizer was asked for.
Status RefuseFormsOfRun(const ConvertOptions& options, const PreparedConversion& prepared) {
  for (const FormatOption& option : prepared.to.Options()) {
    if (!option.is_of_run || !prepared.to.forms.contains(option.name)) continue;
    const bool is_left_out = options.weights_only && HoldsRun(*prepared.model.checkpoint);
    const std::string_view other = is_left_out ? "--weights-only or its " : "";
    return Error(ErrorKind::kUsage,
                 fmt::format("--{} is about an optimizer, and the target has none", option.name))
        .File(prepared.model.checkpoint->path.string())
        .Expected("a training run")
        .Actual(is_left_out ? "one of which --weights-only leaves the optimizer out"
                            : "a checkpoint of weights alone")
        .Hint(fmt::format("leave ckpt-convert's {}--{} out", other, option.name));
  }
  return OkStatus();
}

// The arguments of a run may describe another model than the configuration that is stored with it.
Status WarnOfAnotherModel(const layout::Configuration& args, PreparedConversion& prepared) {
  const ModelSource& model = prepared.model;
  if (model.assets.empty() || model.config.empty() || args.empty()) return OkStatus();
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

// Under one of Megatron's names may be another number than under the published one, and who reads
// that may compute something else with it.
Status CheckPublishes(const layout::Configuration& args, PreparedConversion& prepared) {
  const ModelSource& model = prepared.model;
  if (!IsOfMegatron(model.match.layout.naming) || IsOfMegatron(prepared.to.NamingInUse())) {
    return OkStatus();
  }
  const std::string file = model.checkpoint->path.string();
  CKPT_ASSIGN_OR_RETURN(std::vector<Problem> unpublished, UnpublishedIn(args));
  for (Problem& warning : unpublished) {
    warning.file = file;
    prepared.warnings.push_back(std::move(warning));
  }
  return CheckStoredAsOthersDo(args).File(file).Hint(
      "ckpt-convert --to torch_dist or fsdp_dtensor, or without --naming, keeps them as they are");
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

// The formats that can be written without knowing what model the tensors are.
std::vector<std::string_view> FormatsOfAnyTensors() {
  std::vector<std::string_view> names;
  for (const Format* format : Formats()) {
    const bool is_written = format->plan_weights != nullptr;
    if (is_written && format->usual_naming.empty()) names.push_back(format->name);
  }
  return names;
}

// Of a source that is not understood as a model, while the target follows from its origin: another
// target need not know the model.
Status SuggestAnyTensors(Status failure) {
  const ErrorKind kind = failure.kind();
  const bool is_unknown = kind == ErrorKind::kNotFound || kind == ErrorKind::kUnsupported ||
                          kind == ErrorKind::kUnmapped;
  if (!is_unknown) return failure;
  std::vector<Problem> problems = failure.problems();
  std::string& hint = problems.back().hint;
  hint += fmt::format("{}ckpt-convert --to {} takes the tensors of any model, under their own keys",
                      hint.empty() ? "" : "; or ", fmt::join(FormatsOfAnyTensors(), " or "));
  return Status(std::move(problems));
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
    return OkStatus();
  }
  std::shared_ptr<const OpenedCheckpoint> seen = std::move(checkpoint);
  if (prepared.to.FormForRun() != nullptr && !options.weights_only) {
    CKPT_ASSIGN_OR_RETURN(seen, SeeParameters(std::move(seen)));
  }
  OpenModelOptions of_model = options.model;
  prepared.keeps_padding = KeepsPadding(options, prepared.to, *seen);
  of_model.with_vocabulary_padding = prepared.keeps_padding;
  Result<ModelSource> understood = UnderstandModel(storage, seen, of_model);
  if (!understood.ok() && prepared.keeps_padding) {
    // The arguments may tell of rows that a conversion to FSDP2 left out.
    Result<ModelSource> unpadded = UnderstandModel(storage, std::move(seen), options.model);
    if (unpadded.ok()) {
      prepared.keeps_padding = false;
      understood = std::move(unpadded);
    }
  }
  if (!understood.ok() && options.to.container == nullptr) {
    return SuggestAnyTensors(std::move(understood).status());
  }
  CKPT_ASSIGN_OR_RETURN(prepared.model, std::move(understood));
  return OkStatus();
}

}  // namespace

Result<PreparedConversion> PrepareConversion(Storage& storage, const ConvertOptions& options) {
  PreparedConversion prepared;
  CKPT_RETURN_IF_ERROR(OpenConverted(storage, options, prepared));
  const ModelSource& model = prepared.model;
  prepared.warnings = model.warnings;
  if (model.family) {
    CKPT_ASSIGN_OR_RETURN(const layout::Configuration args, ArgsOfRun(model));
    CKPT_RETURN_IF_ERROR(CheckPublishes(args, prepared));
    CKPT_RETURN_IF_ERROR(WarnOfAnotherModel(args, prepared));
  } else {
    // Tensors keep the source's keys, whatever model they are.
    CKPT_RETURN_IF_ERROR(CheckOptionsAsStored(options, prepared));
  }
  CKPT_RETURN_IF_ERROR(CheckPaths(storage, options, prepared));
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
  if (!run) CKPT_RETURN_IF_ERROR(RefuseFormsOfRun(options, prepared));
  CKPT_ASSIGN_OR_RETURN(ModelView view, ViewTarget(options, prepared));
  CKPT_ASSIGN_OR_RETURN(PlannedCheckpoint planned,
                        run ? PlanRunTarget(storage, options, *run, view, prepared)
                            : PlanTarget(storage, options, *target, view, prepared));
  // Links are not in the plan.
  const std::vector<TargetTensor>& shown = options.link ? view.tensors : planned.plan.tensors;
  for (const auto* const tensors : {&shown, &std::as_const(planned.plan.known_tensors)}) {
    prepared.target_tensors += tensors->size();
    for (const TargetTensor& tensor : *tensors) {
      prepared.target_bytes += NumBytes(tensor.shape, tensor.dtype);
    }
  }
  CKPT_ASSIGN_OR_RETURN(prepared.plan.recipes,
                        RecipesOfPlan(planned.plan, view.tensors, std::move(view.recipes)));
  prepared.plan.write = std::move(planned.plan);
  prepared.checkpoint_directory =
      target->is_one_file ? options.target.filename().string() : planned.checkpoint_directory;
  CKPT_ASSIGN_OR_RETURN(prepared.plan.source_identity, IdentifySource(storage, model));
  CKPT_RETURN_IF_ERROR(CheckPlan(prepared.plan, model.source().index()));
  CKPT_RETURN_IF_ERROR(CountFiles(storage, options, prepared));
  return prepared;
}

}  // namespace ckpt

#include "formats/registry/stored_run.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <utility>

#include "formats/torch_save/carried_object.h"
#include "formats/torch_save/object_item.h"

namespace ckpt {
namespace {

// How the checkpoint would store a run; null if no format says so.
const RunFormat* RunFormatOf(const OpenedCheckpoint& checkpoint) {
  if (checkpoint.format->run != nullptr) return checkpoint.format->run;
  for (const Format* format : Formats()) {
    const bool can_tell = format->run != nullptr && format->has_keys_of != nullptr;
    if (can_tell && format->has_keys_of(checkpoint.source->index())) return format->run;
  }
  return nullptr;
}

// How the run in the checkpoint is stored; null if the checkpoint holds no run.
const RunFormat* HeldRunFormat(const OpenedCheckpoint& checkpoint) {
  const RunFormat* const run = RunFormatOf(checkpoint);
  if (run == nullptr) return nullptr;
  const CheckpointSource& source = *checkpoint.source;
  const bool is_held =
      run->holds_run(source.index()) || (run->holds_groups != nullptr && run->holds_groups(source));
  return is_held ? run : nullptr;
}

// "optimizer.state.0.exp_avg": torch's optimizers number the parameters, and say nothing of their
// names. No format here reads such a run.
bool IsOfNumberedParameter(std::string_view key) {
  constexpr std::string_view kState = "state.";
  constexpr std::array<std::string_view, 5> kFields = {"step", "exp_avg", "exp_avg_sq",
                                                       "max_exp_avg_sq", "momentum_buffer"};
  const std::size_t dot = key.rfind('.');
  if (dot == std::string_view::npos) return false;
  if (std::ranges::find(kFields, key.substr(dot + 1)) == kFields.end()) return false;
  std::string_view owner = key.substr(0, dot);
  const std::size_t digits = owner.size() - (owner.find_last_not_of("0123456789") + 1);
  if (digits == 0) return false;
  owner.remove_suffix(digits);
  if (!owner.ends_with(kState)) return false;
  owner.remove_suffix(kState.size());
  return owner.empty() || owner.ends_with('.');
}

}  // namespace

Result<layout::Configuration> ReadRunArgs(const OpenedCheckpoint& checkpoint) {
  if (checkpoint.format->read_args != nullptr) {
    return checkpoint.format->read_args(*checkpoint.source);
  }
  for (const Format* format : Formats()) {
    if (format->read_args == nullptr) continue;
    CKPT_ASSIGN_OR_RETURN(layout::Configuration args, format->read_args(*checkpoint.source));
    if (!args.empty()) return args;
  }
  return layout::Configuration();
}

bool HoldsRun(const OpenedCheckpoint& checkpoint) { return HeldRunFormat(checkpoint) != nullptr; }

bool IsStoredAs(const OpenedCheckpoint& checkpoint, const RunFormat& run) {
  return HeldRunFormat(checkpoint) == &run;
}

bool HoldsOptimizer(const CheckpointIndex& index) {
  const bool is_of_a_run = std::ranges::any_of(Formats(), [&](const Format* format) {
    return format->run != nullptr && format->run->holds_run(index);
  });
  return is_of_a_run || std::ranges::any_of(index.tensors(), [](const GlobalTensor& tensor) {
           return IsOfNumberedParameter(tensor.key);
         });
}

Result<std::shared_ptr<const OpenedCheckpoint>> SeeParameters(
    std::shared_ptr<const OpenedCheckpoint> checkpoint) {
  const RunFormat* const run = HeldRunFormat(*checkpoint);
  if (run == nullptr || run->by_parameter == nullptr) return checkpoint;
  CKPT_ASSIGN_OR_RETURN(std::shared_ptr<const CheckpointSource> source,
                        run->by_parameter(checkpoint->source));
  if (source == checkpoint->source) return checkpoint;
  OpenedCheckpoint seen = *checkpoint;
  seen.source = std::move(source);
  return std::shared_ptr<const OpenedCheckpoint>(
      std::make_shared<OpenedCheckpoint>(std::move(seen)));
}

PackedParts PartsOfBuffers(const OpenedCheckpoint& seen) {
  const RunFormat* const run = HeldRunFormat(seen);
  if (run == nullptr || run->parts_of_buffers == nullptr) return {};
  return run->parts_of_buffers(*seen.source);
}

Result<std::vector<OptimizerTensors>> FindOptimizerTensors(const OpenedCheckpoint& checkpoint) {
  const CheckpointIndex& index = checkpoint.source->index();
  std::vector<OptimizerTensors> found;
  if (const RunFormat* const run = HeldRunFormat(checkpoint)) {
    CKPT_ASSIGN_OR_RETURN(found.emplace_back(), run->find_tensors(index));
    return found;
  }
  for (const Format* const format : Formats()) {
    if (format->run == nullptr || !format->run->holds_run(index)) continue;
    Result<OptimizerTensors> tensors = format->run->find_tensors(index);
    if (!tensors.ok()) continue;
    std::erase_if(tensors->moments,
                  [](const StoredMoment& moment) { return moment.weight_of.empty(); });
    if (!tensors->moments.empty()) found.push_back(*std::move(tensors));
  }
  return found;
}

Result<StoredRun> ReadStoredRun(const OpenedCheckpoint& checkpoint, RunDetail detail) {
  if (const RunFormat* const run = HeldRunFormat(checkpoint)) {
    return run->read(*checkpoint.source, detail);
  }
  return Error(ErrorKind::kMissing, "the checkpoint stores no training run")
      .Hint("ckpt-train --set finetune=true takes the weights alone");
}

const Format& FormOfRun(const Format& container, std::string_view naming) {
  if (container.run != nullptr || !container.holds_objects) return container;
  if (naming.empty()) return container.file_in_directory.empty() ? container : UsualRunFormat();
  for (const Format* const format : Formats()) {
    const bool tells_entries = format->run != nullptr && format->run->entries != nullptr;
    if (tells_entries && format->usual_naming == naming) return *format;
  }
  return container;
}

std::vector<FormatOption> OptionsOfRun(const Format& container, const Format& form) {
  std::vector<FormatOption> options(container.options.begin(), container.options.end());
  if (&form == &container) return options;
  std::ranges::copy_if(form.options, std::back_inserter(options), &FormatOption::is_of_run);
  return options;
}

Result<PlannedCheckpoint> PlanEntriesOfRun(const Format& form, RunRequest of_run,
                                           const Format& container, WeightsRequest request) {
  of_run.tensors = std::move(request.tensors);
  of_run.forms = std::exchange(request.forms, {});
  CKPT_ASSIGN_OR_RETURN(RunEntries entries, form.run->entries(of_run));
  request.tensors = std::move(entries.tensors);
  request.known_tensors = std::move(entries.known_tensors);
  for (PickledEntry& object : entries.objects) {
    CKPT_ASSIGN_OR_RETURN(RenderedObject text, torch_save::RenderPickled(object));
    request.carried_objects.push_back({.key = std::move(object.key),
                                       .type = std::move(text.type),
                                       .json = std::move(text.json),
                                       .numbers = std::move(text.numbers),
                                       .pickled = std::move(object.value)});
  }
  if (form.run->path_of != nullptr && container.nested_keys != NestedKeys::kNone) {
    const auto add = [&](const std::string& key) {
      const auto carried = of_run.carried_paths.find(key);
      EntryPath path = carried == of_run.carried_paths.end() ? form.run->path_of(key, of_run.forms)
                                                             : carried->second;
      if (container.nested_keys == NestedKeys::kTexts) path = WithTextKeys(std::move(path));
      request.paths.emplace(key, std::move(path));
    };
    for (const TargetTensor& tensor : request.tensors) add(tensor.key);
    for (const MemoryTensor& tensor : request.known_tensors) add(tensor.key);
    for (const CarriedObject& object : request.carried_objects) add(object.key);
  }
  for (const FormatOption& option : container.options) {
    const auto chosen = of_run.forms.find(std::string(option.name));
    if (chosen != of_run.forms.end()) request.forms.insert(*chosen);
  }
  CKPT_ASSIGN_OR_RETURN(PlannedCheckpoint planned, PlanWeights(container, std::move(request)));
  planned.plan.packed = std::move(entries.packed);
  return planned;
}

Result<PickledObject> ReadAsPickle(const CheckpointSource& source, const ObjectEntry& object) {
  CKPT_ASSIGN_OR_RETURN(std::optional<PickledObject> pickled, source.ReadPickled(object));
  if (pickled) return *std::move(pickled);
  CKPT_ASSIGN_OR_RETURN(RenderedObject text, source.ReadObject(object));
  return torch_save::PickleCarried({.key = object.key, .json = std::move(text.json)});
}

}  // namespace ckpt

#include "formats/format.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/bytes.h"
#include "core/base/quote.h"
#include "core/checkpoint/add_file.h"

namespace ckpt {

Result<std::unique_ptr<CheckpointSource>> OpenAs(const Format& format, Storage& storage,
                                                 const Path& path) {
  if (format.open != nullptr) return format.open(storage, path);
  return Error(ErrorKind::kUnsupported,
               fmt::format("{} checkpoints cannot be read by this build", format.name))
      .File(path.string());
}

namespace {

Status CheckKeysAreText(const Format& format, const WeightsRequest& request) {
  const auto check = [&](const std::string& key) -> Status {
    if (IsUtf8(key)) return OkStatus();
    return Error(ErrorKind::kUnsupported,
                 fmt::format("{} has no key that is not UTF-8", format.name))
        .Tensor(key)
        .Hint("ckpt-convert --rename gives it another name, --to hdf5 keeps it");
  };
  for (const TargetTensor& tensor : request.tensors) CKPT_RETURN_IF_ERROR(check(tensor.key));
  for (const CarriedObject& object : request.carried_objects) {
    CKPT_RETURN_IF_ERROR(check(object.key));
  }
  return OkStatus();
}

}  // namespace

Result<PlannedCheckpoint> PlanWeights(const Format& format, WeightsRequest request) {
  if (format.plan_weights == nullptr) {
    return Error(ErrorKind::kUnsupported,
                 fmt::format("{} checkpoints cannot be written by this build", format.name));
  }
  CKPT_RETURN_IF_ERROR(CheckForms(format.name, format.options, request.forms));
  if (!format.keys_are_bytes) CKPT_RETURN_IF_ERROR(CheckKeysAreText(format, request));
  if (format.assets_directory.empty()) return format.plan_weights(std::move(request));
  const std::vector<SideText> texts = std::exchange(request.side_texts, {});
  CKPT_ASSIGN_OR_RETURN(PlannedCheckpoint planned, format.plan_weights(std::move(request)));
  AddSideTexts(format, planned.checkpoint_directory, texts, planned.plan);
  return planned;
}

void AddSideTexts(const Format& format, std::string_view directory, std::span<const SideText> texts,
                  WritePlan& plan) {
  for (const SideText& text : texts) {
    const std::string below = directory.empty() ? std::string() : fmt::format("{}/", directory);
    AddTextFile(fmt::format("{}{}/{}", below, format.assets_directory, text.name), text.content,
                plan);
  }
}

Status CheckForms(std::string_view target, std::span<const FormatOption> options,
                  const ChosenForms& forms) {
  for (const auto& [name, value] : forms) {
    const auto option = std::ranges::find(options, name, &FormatOption::name);
    if (option == options.end()) {
      return Error(ErrorKind::kUsage, "the target does not have this option")
          .Actual("--" + name)
          .Hint("ckpt-convert --to and --naming say what the target is");
    }
    if (std::ranges::find(option->values, value) == option->values.end()) {
      return Error(ErrorKind::kUsage, fmt::format("{} has no such form", target))
          .Expected(fmt::format("{}", fmt::join(option->values, " or ")))
          .Actual(Quote(value));
    }
  }
  return OkStatus();
}

}  // namespace ckpt

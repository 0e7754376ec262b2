#include "formats/verl/format.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "formats/verl/internal/rank_files.h"
#include "formats/verl/internal/source.h"

namespace ckpt::verl {
namespace {

bool HoldsRankFiles(const Place& place) {
  return place.is_directory &&
         std::ranges::any_of(place.names.entries(), [](const DirectoryEntry& entry) {
           return entry.type == FileType::kRegular && IsModelFile(entry.name);
         });
}

Result<std::optional<Path>> Recognise(const Place& place) {
  return HoldsRankFiles(place) ? std::optional(place.path) : std::nullopt;
}

// Which of two models is meant cannot be known.
Status RefuseTwoModels(const Place& place) {
  const bool has_others = place.names.HasSuffix(".safetensors") || place.names.Has(".metadata") ||
                          place.names.HasPrefix("pytorch_model");
  if (!has_others || !HoldsRankFiles(place)) return OkStatus();
  return Error(ErrorKind::kUnsupported,
               "verl's files, one file a rank, lie beside those of another checkpoint")
      .File(place.path.string())
      .Hint("move one of the two to a folder of its own");
}

// The folders around a model: `global_step_N`, and in it one for each of the models.
Status Explain(const Place& place) {
  if (!place.is_directory) return OkStatus();
  const auto explain = [&](std::string what, std::string hint) {
    return Error(ErrorKind::kUnsupported, std::move(what))
        .File(place.path.string())
        .Hint(std::move(hint));
  };
  std::string step;
  for (const DirectoryEntry& entry : place.names.entries()) {
    if (entry.type != FileType::kDirectory) continue;
    if (entry.name == "actor" || entry.name == "critic") {
      return explain("a step of verl around its models",
                     fmt::format("open {}", (place.path / entry.name).string()));
    }
    if (step.empty() && entry.name.starts_with("global_step_")) step = entry.name;
  }
  if (step.empty()) return OkStatus();
  return explain("verl's folder around the steps of a run",
                 fmt::format("open {}", (place.path / step / "actor").string()));
}

}  // namespace

constinit const Format kFormat = {.name = "verl",
                                  .assets_directory = "huggingface",
                                  .recognise = &Recognise,
                                  .refuse = &RefuseTwoModels,
                                  .explain = &Explain,
                                  .open = &OpenSource};

}  // namespace ckpt::verl

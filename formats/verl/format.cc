#include "formats/verl/format.h"

#include <algorithm>
#include <optional>

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

}  // namespace

constinit const Format kFormat = {.name = "verl",
                                  .assets_directory = "huggingface",
                                  .recognise = &Recognise,
                                  .refuse = &RefuseTwoModels,
                                  .open = &OpenSource};

}  // namespace ckpt::verl

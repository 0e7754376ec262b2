#include "formats/registry/internal/detect.h"

#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "formats/registry/registry.h"

namespace ckpt {
namespace {

Status NothingKnown(const Place& place) {
  for (const Format* format : Formats()) {
    if (format->explain != nullptr) CKPT_RETURN_IF_ERROR(format->explain(place));
  }
  std::vector<std::string_view> signs;
  for (const Format* format : Formats()) {
    const std::string_view sign = place.is_directory ? format->directory_signs : format->file_signs;
    if (!sign.empty()) signs.push_back(sign);
  }
  const std::string list = fmt::format("{}", fmt::join(signs, ", "));
  return place.is_directory ? Error(ErrorKind::kUnsupported, "no checkpoint of a known format")
                                  .File(place.path.string())
                                  .Hint("looked for a Megatron tracker, step-N folders, " + list)
                            : Error(ErrorKind::kUnsupported, "no checkpoint file of a known format")
                                  .File(place.path.string())
                                  .Hint("looked for the first bytes of " + list);
}

}  // namespace

Result<DetectedFormat> DetectFormat(Storage& storage, const CheckpointLocation& location) {
  CKPT_ASSIGN_OR_RETURN(const Place place, location.is_directory
                                               ? LookAtDirectory(storage, location.path)
                                               : LookAtFile(storage, location.path));
  for (const Format* format : Formats()) {
    if (format->refuse != nullptr) CKPT_RETURN_IF_ERROR(format->refuse(place));
  }
  for (const Format* format : Formats()) {
    if (format->recognise == nullptr) continue;
    CKPT_ASSIGN_OR_RETURN(std::optional<Path> recognised, format->recognise(place));
    if (recognised) return DetectedFormat{format, *std::move(recognised)};
  }
  return NothingKnown(place);
}

}  // namespace ckpt

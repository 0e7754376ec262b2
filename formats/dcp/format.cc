#include "formats/dcp/format.h"

#include <utility>

#include "formats/dcp/internal/directory.h"
#include "formats/dcp/source.h"
#include "formats/dcp/writer.h"
#include "formats/torch_save/carried_object.h"

namespace ckpt::dcp {
namespace {

Result<std::optional<Path>> RecogniseDirectory(const Place& place) {
  // A save without collectives has one metadata file for each rank.
  if (place.names.Has(".metadata") || place.names.HasAffixes("__", ".metadata")) {
    return std::optional(place.path);
  }
  const bool has_data = place.names.HasSuffix(kDataSuffix);
  if (has_data || place.names.Has(".metadata.tmp")) {
    return Error(ErrorKind::kIncomplete, "no .metadata: an interrupted save")
        .File((place.path / ".metadata").string())
        .Actual(has_data ? "data files (.distcp) without the file that names their tensors"
                         : ".metadata.tmp")
        .Hint("names of tensors live only in .metadata; use the checkpoint before this one");
  }
  return std::optional<Path>();
}

Result<std::optional<Path>> Recognise(const Place& place) {
  if (place.is_directory) return RecogniseDirectory(place);
  if (place.path.extension().string() != kDataSuffix) return std::optional<Path>();
  return Error(ErrorKind::kUnsupported,
               "one data file of a checkpoint: the names of its tensors are in .metadata")
      .File(place.path.string())
      .Hint("open the folder");
}

Result<PlannedCheckpoint> PlanWeights(WeightsRequest request) {
  WriterOptions options;
  options.files = request.files;
  options.max_file_bytes = request.max_file_bytes;
  options.zstd_level = request.zstd_level;
  options.known_tensors = std::move(request.known_tensors);
  options.path_of = [&paths = request.paths](const std::string& key) {
    const auto found = paths.find(key);
    return found == paths.end() ? EntryPath{key} : found->second;
  };
  for (const CarriedObject& object : request.carried_objects) {
    CKPT_ASSIGN_OR_RETURN(PickledObject pickled, torch_save::PickleCarried(object));
    options.objects.push_back({.key = object.key, .value = std::move(pickled)});
  }
  PlannedCheckpoint planned;
  CKPT_ASSIGN_OR_RETURN(planned.plan, PlanDcp(std::move(request.tensors), options));
  for (WriteCopy& copy : request.side_files) {
    planned.plan.copies.push_back(
        {.from = std::move(copy.from), .name = std::string(kAssetsDirectory) + "/" + copy.name});
  }
  return planned;
}

}  // namespace

constinit const Format kFormat = {.name = "dcp",
                                  .holds_objects = true,
                                  .nested_keys = NestedKeys::kTexts,
                                  .can_compress = true,
                                  .directory_signs = ".metadata",
                                  .recognise = &Recognise,
                                  .open = &OpenSource,
                                  .plan_weights = &PlanWeights,
                                  .check_object = &torch_save::CheckCarried};

}  // namespace ckpt::dcp

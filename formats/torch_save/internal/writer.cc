#include "formats/torch_save/internal/writer.h"

#include <utility>

#include "formats/torch_save/carried_object.h"
#include "formats/torch_save/internal/state_file.h"

namespace ckpt::torch_save {

Result<PlannedCheckpoint> PlanStateDict(WeightsRequest request) {
  CKPT_RETURN_IF_ERROR(CheckIsOneFile({.files = request.files,
                                       .max_file_bytes = request.max_file_bytes,
                                       .is_compressed = request.zstd_level.has_value()}));
  StateFile state = {.name = std::move(request.file_name), .tensors = std::move(request.tensors)};
  state.known_tensors = std::move(request.known_tensors);
  state.paths = std::move(request.paths);
  state.origin = std::move(request.origin);
  for (const CarriedObject& object : request.carried_objects) {
    CKPT_ASSIGN_OR_RETURN(PickledObject value, PickleCarried(object));
    state.objects.push_back({.key = object.key, .value = std::move(value)});
  }
  PlannedCheckpoint planned;
  CKPT_ASSIGN_OR_RETURN(planned.plan, PlanStateFile(std::move(state)));
  return planned;
}

}  // namespace ckpt::torch_save

#include "formats/fsdp2/internal/file_writer.h"

#include <utility>

#include "core/checkpoint/source.h"
#include "formats/fsdp2/internal/run_objects.h"
#include "formats/torch_save/format.h"

namespace ckpt::fsdp2 {

Result<PlannedCheckpoint> PlanFile(WeightsRequest request) {
  // Only of weights: a run has arguments and places of its own.
  if (request.run_args) {
    CKPT_ASSIGN_OR_RETURN(const megatron::NamedValues args, request.run_args());
    PickledEntry entry = ArgsObject(args);
    request.paths.emplace(entry.key, RunPath(entry.key, request.forms));
    for (const TargetTensor& tensor : request.tensors) {
      request.paths.emplace(tensor.key, RunPath(tensor.key, request.forms));
    }
    request.carried_objects.push_back(
        {.key = std::move(entry.key), .pickled = std::move(entry.value)});
  }
  return torch_save::kFormat.plan_weights(std::move(request));
}

}  // namespace ckpt::fsdp2

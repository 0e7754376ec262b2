#include "formats/fsdp2/internal/file_writer.h"

#include <string>
#include <utility>

#include "formats/dcp/writer.h"
#include "formats/fsdp2/internal/run_objects.h"
#include "formats/fsdp2/internal/writer.h"
#include "formats/torch_save/state_file.h"

namespace ckpt::fsdp2 {
namespace {

using torch_save::StateFile;

void AddObject(dcp::WriterObject object, StateFile& state) {
  state.objects.push_back(
      {.key = std::move(object.key),
       .value = {.pickle = std::move(object.pickle), .storages = std::move(object.storages)}});
}

void AddPaths(bool is_flat, StateFile& state) {
  const auto add = [&](const std::string& key) { state.paths.emplace(key, RunPath(key, is_flat)); };
  for (const TargetTensor& tensor : state.tensors) add(tensor.key);
  for (const torch_save::StateTensor& tensor : state.known_tensors) add(tensor.key);
  for (const torch_save::StateObject& object : state.objects) add(object.key);
}

}  // namespace

Result<PlannedCheckpoint> PlanWeightsFile(WeightsRequest request) {
  CKPT_RETURN_IF_ERROR(
      torch_save::CheckIsOneFile({.files = request.files,
                                  .max_file_bytes = request.max_file_bytes,
                                  .is_compressed = request.zstd_level.has_value()}));
  StateFile state = {.name = std::move(request.file_name), .tensors = std::move(request.tensors)};
  state.origin = std::move(request.origin);
  if (request.run_args) {
    CKPT_ASSIGN_OR_RETURN(const megatron::NamedValues args, request.run_args());
    AddObject(ArgsObject(args), state);
  }
  AddPaths(IsFlat(request.forms), state);
  PlannedCheckpoint planned;
  CKPT_ASSIGN_OR_RETURN(planned.plan, torch_save::PlanStateFile(std::move(state)));
  return planned;
}

Result<WritePlan> PlanRunFile(RunRequest request) {
  CKPT_RETURN_IF_ERROR(
      torch_save::CheckIsOneFile({.files = request.files,
                                  .max_file_bytes = request.max_file_bytes,
                                  .is_compressed = request.zstd_level.has_value()}));
  const bool is_flat = IsFlat(request.forms);
  StateFile state = {.name = std::move(request.file_name), .tensors = std::move(request.tensors)};
  state.origin = std::move(request.origin);
  for (dcp::WriterTensor& step : StepTensors(request.run)) {
    state.known_tensors.push_back({.key = std::move(step.key),
                                   .dtype = step.dtype,
                                   .shape = std::move(step.shape),
                                   .values = std::move(step.values)});
  }
  for (dcp::WriterObject& object : RunObjects(request.run, is_flat)) {
    AddObject(std::move(object), state);
  }
  AddPaths(is_flat, state);
  return torch_save::PlanStateFile(std::move(state));
}

}  // namespace ckpt::fsdp2

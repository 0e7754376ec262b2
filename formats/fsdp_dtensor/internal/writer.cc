#include "formats/fsdp_dtensor/internal/writer.h"

#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/training/run_settings.h"
#include "formats/dcp/run_options.h"
#include "formats/dcp/writer.h"
#include "formats/format.h"
#include "formats/fsdp_dtensor/internal/read_run.h"
#include "formats/fsdp_dtensor/internal/run_keys.h"
#include "formats/fsdp_dtensor/internal/run_objects.h"
#include "formats/megatron/bridge_files.h"
#include "formats/megatron/plain_pickle.h"
#include "formats/megatron/plan_root.h"
#include "formats/megatron/root.h"

namespace ckpt::fsdp_dtensor {
namespace {

void AddBridge(const TrainingRun& run, const std::vector<WriteCopy>& side_files,
               std::string_view directory, WritePlan& plan) {
  megatron::AddBridgeFiles(
      run, {.format = "fsdp_dtensor", .side_files = side_files, .directory = directory}, plan);
}

}  // namespace

Result<WritePlan> PlanRelease(std::vector<TargetTensor> tensors, WriterOptions options) {
  const std::string directory = std::string(megatron::kReleaseDirectory) + "/";
  dcp::WriterOptions dcp_options;
  dcp_options.objects = {{"args", {megatron::PickleNamespace(options.args)}},
                         {std::string(kIteration), {megatron::PickleValue(0)}},
                         {"checkpoint_version", {megatron::PickleValue(3.0)}}};
  dcp_options.path_of = &RunPath;
  dcp_options.files = options.files;
  dcp_options.max_file_bytes = options.max_file_bytes;
  dcp_options.zstd_level = options.zstd_level;
  dcp_options.directory = directory;
  CKPT_ASSIGN_OR_RETURN(WritePlan plan, dcp::PlanDcp(std::move(tensors), dcp_options));
  megatron::AddCopies(options.side_files, fmt::format("{}{}/", directory, kAssetsDirectory), plan);
  megatron::AddTracker(megatron::kReleaseDirectory, plan);
  if (options.is_of_bridge) {
    TrainingRun model;
    model.args = std::move(options.args);
    AddBridge(model, options.side_files, directory, plan);
  }
  return plan;
}

Result<RunEntries> EntriesOfRun(RunRequest& request) {
  RunEntries entries{.tensors = std::move(request.tensors), .objects = RunObjects(request.run)};
  // A trainer brings its own.
  std::set<std::string_view> keys;
  for (const TargetTensor& tensor : entries.tensors) {
    keys.insert(tensor.key);
    if (!tensor.key.starts_with(kOptimizerState)) continue;
    CKPT_RETURN_IF_ERROR(CheckMomentDtype(tensor.key, tensor.dtype));
  }
  for (MemoryTensor& tensor : RunTensors(request.run)) {
    if (!keys.contains(tensor.key)) entries.known_tensors.push_back(std::move(tensor));
  }
  return entries;
}

Result<WritePlan> PlanRun(RunRequest request) {
  dcp::WriterOptions options = dcp::OptionsOfRun(request);
  CKPT_ASSIGN_OR_RETURN(RunEntries entries, EntriesOfRun(request));
  options.objects = std::move(entries.objects);
  options.known_tensors = std::move(entries.known_tensors);
  options.path_of = &RunPath;
  CKPT_ASSIGN_OR_RETURN(WritePlan plan, dcp::PlanDcp(std::move(entries.tensors), options));
  megatron::AddCopies(request.side_files, fmt::format("{}/", kAssetsDirectory), plan);
  if (megatron::IsOfBridge(request.forms)) AddBridge(request.run, request.side_files, "", plan);
  return plan;
}

}  // namespace ckpt::fsdp_dtensor

#include "formats/fsdp2/internal/writer.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "formats/dcp/run_options.h"
#include "formats/dcp/writer.h"
#include "formats/format.h"
#include "formats/fsdp2/internal/run_objects.h"
#include "formats/megatron/plan_root.h"

namespace ckpt::fsdp2 {
namespace {

Result<WritePlan> Plan(std::vector<TargetTensor> tensors, const std::vector<WriteCopy>& side_files,
                       const ChosenForms& forms, const EntryPaths& carried_paths,
                       dcp::WriterOptions options) {
  options.path_of = [forms, carried_paths](const std::string& key) {
    const auto carried = carried_paths.find(key);
    return carried == carried_paths.end() ? RunPath(key, forms) : WithTextKeys(carried->second);
  };
  CKPT_ASSIGN_OR_RETURN(WritePlan plan, dcp::PlanDcp(std::move(tensors), options));
  megatron::AddCopies(side_files, fmt::format("{}/", kAssetsDirectory), plan);
  return plan;
}

}  // namespace

Result<PlannedCheckpoint> PlanWeights(WeightsRequest request) {
  dcp::WriterOptions options;
  options.files = request.files;
  options.max_file_bytes = request.max_file_bytes;
  options.zstd_level = request.zstd_level;
  if (request.side_files.empty() && request.run_args) {
    CKPT_ASSIGN_OR_RETURN(const megatron::NamedValues args, request.run_args());
    options.objects.push_back(ArgsObject(args));
  }
  PlannedCheckpoint planned;
  CKPT_ASSIGN_OR_RETURN(planned.plan, Plan(std::move(request.tensors), request.side_files,
                                           request.forms, {}, std::move(options)));
  return planned;
}

Result<RunEntries> EntriesOfRun(RunRequest& request) {
  RunEntries entries = {
      .tensors = std::move(request.tensors),
      .known_tensors = StepTensors(request.run),
      .objects = RunObjects(request.run, request.forms, std::move(request.carried))};
  std::ranges::move(request.carried_tensors, std::back_inserter(entries.known_tensors));
  AddEmptyState(request.forms, entries);
  return entries;
}

Result<WritePlan> PlanRun(RunRequest request) {
  dcp::WriterOptions options = dcp::OptionsOfRun(request);
  CKPT_ASSIGN_OR_RETURN(RunEntries entries, EntriesOfRun(request));
  options.objects = std::move(entries.objects);
  options.known_tensors = std::move(entries.known_tensors);
  return Plan(std::move(entries.tensors), request.side_files, request.forms, request.carried_paths,
              std::move(options));
}

}  // namespace ckpt::fsdp2

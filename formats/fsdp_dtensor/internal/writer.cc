#include "formats/fsdp_dtensor/internal/writer.h"

#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/base/bytes.h"
#include "formats/dcp/writer.h"
#include "formats/format.h"
#include "formats/fsdp_dtensor/internal/plain_pickle.h"
#include "formats/fsdp_dtensor/internal/run_objects.h"
#include "formats/megatron/root.h"

namespace ckpt::fsdp_dtensor {

namespace {

void AddSideFiles(const std::vector<WriteCopy>& side_files, const std::string& directory,
                  WritePlan& plan) {
  for (const WriteCopy& copy : side_files) {
    plan.copies.push_back({.from = copy.from,
                           .name = fmt::format("{}{}/{}", directory, kAssetsDirectory, copy.name)});
  }
}

}  // namespace

Result<WritePlan> PlanRelease(std::vector<TargetTensor> tensors, WriterOptions options) {
  const std::string directory = std::string(megatron::kReleaseDirectory) + "/";
  dcp::WriterOptions dcp_options;
  dcp_options.objects = {{"args", PickleNamespace(options.args)},
                         {"iteration", PickleValue(0)},
                         {"checkpoint_version", PickleValue(3.0)}};
  dcp_options.path_of = &RunPath;
  dcp_options.files = options.files;
  dcp_options.max_file_bytes = options.max_file_bytes;
  dcp_options.zstd_level = options.zstd_level;
  dcp_options.directory = directory;
  CKPT_ASSIGN_OR_RETURN(WritePlan plan, dcp::PlanDcp(std::move(tensors), dcp_options));
  AddSideFiles(options.side_files, directory, plan);
  Bytes tracker;
  Append(megatron::kReleaseDirectory, tracker);
  plan.files.push_back({.name = std::string(megatron::kTrackerName), .size_bytes = tracker.size()});
  plan.literals.push_back({.file = static_cast<std::uint32_t>(plan.files.size() - 1),
                           .offset_bytes = 0,
                           .bytes = std::move(tracker)});
  return plan;
}

Result<WritePlan> PlanRun(RunRequest request) {
  dcp::WriterOptions options;
  options.objects = RunObjects(request.run);
  options.path_of = &RunPath;
  for (const std::vector<RowsFromFile>& blocks : request.placed) {
    std::vector<dcp::PlacedRows>& placed = options.placed.emplace_back();
    for (const RowsFromFile& rows : blocks) {
      placed.push_back({.box = rows.box, .writer = rows.file});
    }
  }
  CKPT_ASSIGN_OR_RETURN(WritePlan plan, dcp::PlanDcp(std::move(request.tensors), options));
  AddSideFiles(request.side_files, "", plan);
  return plan;
}

}  // namespace ckpt::fsdp_dtensor

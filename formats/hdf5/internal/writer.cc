#include "formats/hdf5/internal/writer.h"

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/checkpoint/entry_path_json.h"
#include "formats/hdf5/internal/new_data_sets.h"
#include "formats/hdf5/internal/plan_chunked.h"
#include "formats/hdf5/internal/plan_contiguous.h"
#include "formats/hdf5/internal/plan_external.h"
#include "formats/hdf5/internal/plan_virtual.h"
#include "formats/hdf5/internal/structure_file.h"
#include "formats/target_tensors.h"

namespace ckpt::hdf5 {
namespace {

Status CheckTensors(const WeightsRequest& request) {
  const std::vector<TargetTensor>& tensors = request.tensors;
  Status status = CountTargetBytes(tensors).status();
  std::set<std::string_view> keys;
  for (const TargetTensor& tensor : tensors) {
    keys.insert(tensor.key);
    if (tensor.shape.size() > kMaxRank) {
      status.Add(Error(ErrorKind::kUnsupported, "HDF5 has no more than 32 dims")
                     .Tensor(tensor.key)
                     .Actual(FormatDims(tensor.shape)));
    }
  }
  for (const std::string_view key : keys) {
    if (key.find('\0') == key.npos) continue;
    status.Add(Error(ErrorKind::kUnsupported, "a name in HDF5 ends at a byte 0, which a key holds")
                   .Tensor(key)
                   .Hint("ckpt-convert --drop leaves it out, with * for the byte"));
  }
  const auto add = [&](const std::string& key) {
    if (keys.insert(key).second) return;
    status.Add(Error(ErrorKind::kAlreadyExists, "the same key twice").Tensor(key));
  };
  for (const MemoryTensor& tensor : request.known_tensors) add(tensor.key);
  for (const CarriedObject& object : request.carried_objects) add(object.key);
  for (const auto& [key, path] : request.paths) {
    if (IsOnTop(key, path) || !keys.contains(key) || HasJson(path)) continue;
    status.Add(Error(ErrorKind::kUnsupported,
                     "the place in a nested object cannot be written: a key is not UTF-8")
                   .Tensor(key)
                   .Hint("ckpt-convert --rename puts the entry on top, --drop leaves it out"));
  }
  return status;
}

}  // namespace

Result<PlannedCheckpoint> PlanHdf5(WeightsRequest request) {
  const bool has_parts = request.files > 1 || request.max_file_bytes != 0;
  if (request.zstd_level && has_parts) {
    return Error(ErrorKind::kUsage, "a compressed HDF5 checkpoint is one file")
        .Hint("leave ckpt-convert's --files and --max-shard-size out, or --compress");
  }
  CKPT_RETURN_IF_ERROR(CheckTensors(request));
  if (request.links) CKPT_RETURN_IF_ERROR(CheckLinks(request));
  PlannedCheckpoint planned;
  if (request.zstd_level) {
    CKPT_ASSIGN_OR_RETURN(planned.plan, PlanChunked(request));
  } else {
    planned.plan = request.links ? PlanExternal(request)
                   : has_parts   ? PlanVirtual(request)
                                 : PlanContiguous(request);
  }
  planned.plan.known_tensors = DescribeKnown(request.known_tensors);
  return planned;
}

}  // namespace ckpt::hdf5

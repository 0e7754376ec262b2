#include "formats/torch_save/internal/writer.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "formats/pickle/writer.h"
#include "formats/target_tensors.h"
#include "formats/torch_save/internal/archive_records.h"
#include "formats/torch_save/torch_item.h"

namespace ckpt::torch_save {
namespace {

Bytes PickleStateDict(const std::vector<TargetTensor>& tensors) {
  pickle::PickleWriter pickle(pickle::Dialect::kWeightsOnly);
  pickle.BeginDict();
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    pickle.Text(tensors[t].key);
    WriteTensor(static_cast<std::int64_t>(t), tensors[t].dtype, tensors[t].shape, pickle);
  }
  pickle.EndDict();
  return pickle.Take();
}

std::vector<ForeignStorage> StoragesOf(const std::vector<TargetTensor>& tensors) {
  std::vector<ForeignStorage> storages;
  for (const TargetTensor& tensor : tensors) {
    storages.push_back({.size_bytes = NumBytes(tensor.shape, tensor.dtype)});
  }
  return storages;
}

}  // namespace

Result<PlannedCheckpoint> PlanStateDict(WeightsRequest request) {
  if (request.zstd_level) {
    return Error(ErrorKind::kUsage, "a torch_save file cannot be compressed")
        .Hint("torch.load reads plain bytes alone; leave ckpt-convert's --compress out");
  }
  if (request.files > 1 || request.max_file_bytes != 0) {
    return Error(ErrorKind::kUsage, "a torch_save checkpoint is one file")
        .Hint("leave ckpt-convert's --files and --max-shard-size out");
  }
  CKPT_RETURN_IF_ERROR(CountTargetBytes(request.tensors).status());
  PlannedCheckpoint planned;
  WritePlan& plan = planned.plan;
  plan.tensors = std::move(request.tensors);
  const auto pickle = std::make_shared<const Bytes>(PickleStateDict(plan.tensors));
  const FramedStorages framed = FrameStorages(*pickle, StoragesOf(plan.tensors));
  const zip::Part& last = framed.parts.back();
  plan.files.push_back(
      {.name = request.file_name, .size_bytes = last.offset_bytes + last.bytes.size()});
  for (std::uint32_t t = 0; t < plan.tensors.size(); ++t) {
    const std::uint64_t bytes = NumBytes(plan.tensors[t].shape, plan.tensors[t].dtype);
    plan.items.push_back({.tensor = t,
                          .file = 0,
                          .box = WholeBox(plan.tensors[t].shape),
                          .offset_bytes = framed.storage_offsets[t],
                          .payload_offset = framed.storage_offsets[t],
                          .payload_bytes = bytes,
                          .size_bytes = bytes});
  }
  // The directory at the end has the checksums of all storages.
  const auto encode = [pickle](const WritePlan& placed, std::span<const WrittenItem> written) {
    std::vector<ForeignStorage> storages = StoragesOf(placed.tensors);
    for (std::size_t i = 0; i < written.size(); ++i) {
      storages[placed.items[i].tensor].crc32 = written[i].payload_crc32;
    }
    std::vector<WriteLiteral> literals;
    for (zip::Part& part : FrameStorages(*pickle, storages).parts) {
      literals.push_back(
          {.file = 0, .offset_bytes = part.offset_bytes, .bytes = std::move(part.bytes)});
    }
    return literals;
  };
  plan.late_bytes = {.files = {0}, .uses_crc32 = true, .encode = encode};
  return planned;
}

}  // namespace ckpt::torch_save

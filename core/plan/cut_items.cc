#include "core/plan/cut_items.h"

#include <cstdint>
#include <utility>

#include "core/tensor/shape.h"

namespace ckpt {
namespace {

Status CheckIsPlain(const WritePlan& plan, const WriteItem& item) {
  const TargetTensor& tensor = plan.tensors[item.tensor];
  const bool is_whole = item.box.sizes == tensor.shape;
  const bool is_placed = !plan.compression && !plan.late_bytes;
  if (is_whole && is_placed && item.size_bytes == item.payload_bytes) return OkStatus();
  return Error(ErrorKind::kUnsupported, "several processes cannot write one tensor of this format")
      .Tensor(tensor.key);
}

}  // namespace

Status CutItems(const std::map<std::string, std::vector<RowsFromFile>>& rows, WritePlan& plan) {
  std::vector<WriteItem> items;
  for (const WriteItem& whole : plan.items) {
    CKPT_RETURN_IF_ERROR(CheckIsPlain(plan, whole));
    const TargetTensor& tensor = plan.tensors[whole.tensor];
    std::uint64_t at = whole.payload_offset;
    for (const RowsFromFile& block : rows.at(tensor.key)) {
      CKPT_ASSIGN_OR_RETURN(const std::uint64_t bytes, CountBytes(block.box.sizes, tensor.dtype));
      items.push_back({.tensor = whole.tensor,
                       .file = whole.file,
                       .box = block.box,
                       .offset_bytes = at,
                       .payload_offset = at,
                       .payload_bytes = bytes,
                       .size_bytes = bytes});
      at += bytes;
    }
  }
  plan.items = std::move(items);
  return OkStatus();
}

}  // namespace ckpt

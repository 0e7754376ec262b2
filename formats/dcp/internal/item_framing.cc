#include "formats/dcp/internal/item_framing.h"

#include "formats/dcp/internal/flat_blocks.h"
#include "formats/torch_save/torch_item.h"

namespace ckpt::dcp {

using torch_save::TensorItem;

ItemSize MeasureItem(DType dtype, DimsView sizes) {
  const TensorItem item(dtype, sizes);
  return {.payload_offset = item.payload_offset(),
          .payload_bytes = item.payload_bytes(),
          .size_bytes = item.size_bytes()};
}

Dims ItemShape(const BlockGrids& flattened, const TargetTensor& tensor, const Box& box) {
  const auto grid = flattened.find(tensor.key);
  return grid == flattened.end() ? box.sizes : StoredBox(tensor.shape, grid->second, box).sizes;
}

Bytes TorchItemFraming::Head(const TargetTensor& tensor, const WriteItem& item) const {
  return TensorItem(tensor.dtype, ItemShape(flattened_, tensor, item.box)).head();
}

Bytes TorchItemFraming::Tail(const TargetTensor& tensor, const WriteItem& item,
                             std::uint32_t payload_crc32) const {
  return TensorItem(tensor.dtype, ItemShape(flattened_, tensor, item.box)).Tail(payload_crc32);
}

}  // namespace ckpt::dcp

// What surrounds the elements of a chunk in a data file.
#ifndef CKPT_FORMATS_DCP_INTERNAL_ITEM_FRAMING_H_
#define CKPT_FORMATS_DCP_INTERNAL_ITEM_FRAMING_H_

#include <cstdint>
#include <utility>

#include "core/checkpoint/write_plan.h"
#include "core/tensor/box.h"
#include "core/tensor/dtype.h"
#include "core/tensor/shape.h"
#include "formats/dcp/writer.h"

namespace ckpt::dcp {

// Sizes of the item that holds one chunk.
struct ItemSize {
  std::uint64_t payload_offset = 0;  // from the item's start; a multiple of 64
  std::uint64_t payload_bytes = 0;
  std::uint64_t size_bytes = 0;
};

// REQUIRES: CountBytes(sizes, dtype) is OK.
[[nodiscard]] ItemSize MeasureItem(DType dtype, DimsView sizes);

// Every chunk is a torch.save archive of its own. Immutable; thread-safe.
class TorchItemFraming final : public ItemFraming {
 public:
  // `flattened` as in WriterOptions.
  explicit TorchItemFraming(BlockGrids flattened = {}) : flattened_(std::move(flattened)) {}

  [[nodiscard]] Bytes Head(const TargetTensor& tensor, const WriteItem& item) const override;
  [[nodiscard]] Bytes Tail(const TargetTensor& tensor, const WriteItem& item,
                           std::uint32_t payload_crc32) const override;
  [[nodiscard]] bool needs_crc32() const override { return true; }

 private:
  const BlockGrids flattened_;
};

// The shape of the item that holds a chunk of `tensor`.
[[nodiscard]] Dims ItemShape(const BlockGrids& flattened, const TargetTensor& tensor,
                             const Box& box);

}  // namespace ckpt::dcp

#endif  // CKPT_FORMATS_DCP_INTERNAL_ITEM_FRAMING_H_

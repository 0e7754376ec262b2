// What torch.save writes for one tensor or one pickled object: the items of a DCP data file.
#ifndef CKPT_FORMATS_TORCH_SAVE_TORCH_ITEM_H_
#define CKPT_FORMATS_TORCH_SAVE_TORCH_ITEM_H_

#include <cstdint>
#include <span>

#include "core/base/bytes.h"
#include "core/tensor/dtype.h"
#include "core/tensor/shape.h"
#include "formats/pickle/writer.h"

namespace ckpt::torch_save {

// A complete archive around a protocol-2 pickle (`data.pkl`) that refers to these storages by their
// number.
[[nodiscard]] Bytes ObjectItem(ByteSpan pickle, std::span<const Bytes> storages = {});

// Writes a tensor that is the whole storage `number`, in C order.
void WriteTensor(std::int64_t number, DType dtype, DimsView shape, pickle::PickleWriter& pickle);

// The archive of one contiguous CPU tensor, all but its elements. Sizes and `head` are known from
// dtype and shape alone, so a file can be laid out before any tensor is read.
//
// The payload starts at a multiple of 64 bytes from the item's start.
class TensorItem {
 public:
  // REQUIRES: CountBytes(shape, dtype) is OK.
  TensorItem(DType dtype, DimsView shape);

  [[nodiscard]] std::uint64_t payload_offset() const { return head_.size(); }
  [[nodiscard]] std::uint64_t payload_bytes() const { return payload_bytes_; }
  [[nodiscard]] std::uint64_t size_bytes() const {
    return head_.size() + payload_bytes_ + tail_bytes_;
  }

  // The bytes before the payload.
  [[nodiscard]] const Bytes& head() const { return head_; }
  // The bytes behind it.
  [[nodiscard]] Bytes Tail(std::uint32_t payload_crc32) const;

 private:
  Bytes pickle_;
  std::uint64_t payload_bytes_ = 0;
  std::uint64_t tail_bytes_ = 0;
  Bytes head_;
};

}  // namespace ckpt::torch_save

#endif  // CKPT_FORMATS_TORCH_SAVE_TORCH_ITEM_H_

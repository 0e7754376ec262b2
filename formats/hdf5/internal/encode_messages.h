// Headers of objects, and messages of them, of a structure that is written. The reverse of
// object_header.h. Element types are in encode_type.h.
#ifndef CKPT_FORMATS_HDF5_INTERNAL_ENCODE_MESSAGES_H_
#define CKPT_FORMATS_HDF5_INTERNAL_ENCODE_MESSAGES_H_

#include <string_view>

#include "core/base/bytes.h"
#include "core/base/endian.h"
#include "core/tensor/shape.h"
#include "formats/hdf5/internal/object_header.h"

namespace ckpt::hdf5 {

// The header of a group or a data set, message after message.
class NewHeader {
 public:
  void Add(MessageType type, ByteSpan body);
  [[nodiscard]] Bytes Encode() const;

 private:
  bool has_attributes_ = false;
  Bytes messages_;
};

[[nodiscard]] Bytes EncodeSpace(DimsView shape);
// zstd, as the one filter.
[[nodiscard]] Bytes EncodeZstdFilter(int zstd_level);
// One value: `type` is an encoded element type.
[[nodiscard]] Bytes EncodeAttribute(std::string_view name, const Bytes& type, ByteSpan value);

// The value of an attribute.
template <typename Number>
[[nodiscard]] Bytes EncodeNumber(Number number) {
  Bytes value;
  AppendLe(number, value);
  return value;
}

}  // namespace ckpt::hdf5

#endif  // CKPT_FORMATS_HDF5_INTERNAL_ENCODE_MESSAGES_H_

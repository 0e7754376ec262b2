#include "formats/hdf5/internal/encode_messages.h"

#include <cstddef>
#include <cstdint>

#include "core/base/check.h"
#include "formats/hdf5/internal/format_numbers.h"
#include "formats/hdf5/internal/structure_file.h"

namespace ckpt::hdf5 {
namespace {

// Attributes are in the header alone: no heap and no tree has more of them. Without this message
// the library says that an object has none, and h5repack copies none.
Bytes EncodeAttributeInfo() {
  Bytes info;
  AppendLe<std::uint8_t>(0, info);
  AppendLe<std::uint8_t>(0, info);
  AppendLe(kUndefined, info);
  AppendLe(kUndefined, info);
  return info;
}

}  // namespace

void NewHeader::Add(MessageType type, ByteSpan body) {
  if (type == MessageType::kAttribute && !has_attributes_) {
    has_attributes_ = true;
    Add(MessageType::kAttributeInfo, EncodeAttributeInfo());
  }
  constexpr std::size_t kMaxBytes = 65535;
  CKPT_CHECK(body.size() <= kMaxBytes);
  AppendLe(static_cast<std::uint8_t>(type), messages_);
  AppendLe(static_cast<std::uint16_t>(body.size()), messages_);
  AppendLe<std::uint8_t>(0, messages_);
  Append(body, messages_);
}

Bytes NewHeader::Encode() const {
  constexpr std::uint8_t kFourByteSize = 0x02;
  Bytes block;
  Append(std::string_view("OHDR\x02"), block);
  AppendLe(kFourByteSize, block);
  AppendLe(static_cast<std::uint32_t>(messages_.size()), block);
  Append(messages_, block);
  AppendLe(Lookup3(block), block);
  return block;
}

Bytes EncodeSpace(DimsView shape) {
  Bytes space;
  AppendLe<std::uint8_t>(2, space);
  AppendLe(static_cast<std::uint8_t>(shape.size()), space);
  AppendLe<std::uint8_t>(0, space);
  AppendLe<std::uint8_t>(shape.empty() ? 0 : 1, space);
  for (const std::int64_t dim : shape) AppendLe(dim, space);
  return space;
}

Bytes EncodeZstdFilter(int zstd_level) {
  Bytes filters;
  AppendLe<std::uint8_t>(2, filters);
  AppendLe<std::uint8_t>(1, filters);
  AppendLe(kZstdFilter, filters);
  constexpr std::string_view kName("zstd\0", 5);
  AppendLe(static_cast<std::uint16_t>(kName.size()), filters);
  AppendLe<std::uint16_t>(0, filters);
  AppendLe<std::uint16_t>(1, filters);
  Append(kName, filters);
  AppendLe(static_cast<std::uint32_t>(zstd_level), filters);
  return filters;
}

Bytes EncodeAttribute(std::string_view name, const Bytes& type, ByteSpan value) {
  const Bytes space = EncodeSpace({});
  Bytes attribute;
  AppendLe<std::uint8_t>(3, attribute);
  AppendLe<std::uint8_t>(0, attribute);
  AppendLe(static_cast<std::uint16_t>(name.size() + 1), attribute);
  AppendLe(static_cast<std::uint16_t>(type.size()), attribute);
  AppendLe(static_cast<std::uint16_t>(space.size()), attribute);
  AppendLe<std::uint8_t>(1, attribute);  // UTF-8
  Append(name, attribute);
  AppendLe<std::uint8_t>(0, attribute);
  Append(type, attribute);
  Append(space, attribute);
  Append(value, attribute);
  return attribute;
}

}  // namespace ckpt::hdf5

#include "formats/zip/writer.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/base/endian.h"
#include "core/base/hash.h"
#include "formats/zip/internal/format.h"

namespace ckpt::zip {
namespace {

constexpr std::uint16_t kZip64EndMadeBy = 0x031E;
constexpr std::uint16_t kZip64EndVersionNeeded = 0x002D;

// The number, or the mark that tells a reader to take it from the zip64 record.
std::uint32_t Narrow(std::uint64_t value) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(value, kSeeZip64));
}

std::uint16_t FlagsOf(std::uint64_t size_bytes) {
  return static_cast<std::uint16_t>(kFlagUtf8 | (size_bytes != 0 ? kFlagDataDescriptor : 0));
}

// The zip64 extra field: both sizes if they are large, then the offset if it is large. Empty if
// none of them is.
Bytes Zip64Extra(std::uint64_t size_bytes, std::uint64_t header_at) {
  Bytes values;
  if (size_bytes >= kSeeZip64) {
    AppendLe<std::uint64_t>(size_bytes, values);
    AppendLe<std::uint64_t>(size_bytes, values);
  }
  if (header_at >= kSeeZip64) AppendLe<std::uint64_t>(header_at, values);
  Bytes extra;
  if (values.empty()) return extra;
  AppendLe<std::uint16_t>(kZip64ExtraId, extra);
  AppendLe<std::uint16_t>(static_cast<std::uint16_t>(values.size()), extra);
  Append(ByteSpan(values), extra);
  return extra;
}

}  // namespace

Writer::Writer(std::string prefix, std::uint64_t alignment)
    : prefix_(std::move(prefix) + "/"), alignment_(alignment) {
  CKPT_CHECK(alignment > 0 && alignment <= 0x8000);
}

void Writer::Add(std::string_view name, ByteSpan payload) {
  BeginRecord(name, payload.size(), Crc32(payload));
  Append(payload, out());
  EndRecord();
}

std::uint64_t Writer::AddForeign(std::string_view name, std::uint64_t size_bytes,
                                 std::uint32_t crc32) {
  BeginRecord(name, size_bytes, crc32);
  const std::uint64_t payload_at = position();
  parts_.push_back({.offset_bytes = payload_at + size_bytes, .bytes = {}});
  EndRecord();
  return payload_at;
}

void Writer::BeginRecord(std::string_view name, std::uint64_t size_bytes, std::uint32_t crc32) {
  const Entry& entry = entries_.emplace_back(Entry{.name = prefix_ + std::string(name),
                                                   .header_at = position(),
                                                   .size_bytes = size_bytes,
                                                   .crc32 = crc32});
  const Bytes zip64 = Zip64Extra(size_bytes, entry.header_at);
  // torch pads with a private extra field "FB". Its header is written even if no padding is needed.
  constexpr std::size_t kPaddingHeaderBytes = 4;
  const std::uint64_t unpadded =
      entry.header_at + kLocalHeaderBytes + entry.name.size() + kPaddingHeaderBytes + zip64.size();
  const std::uint64_t padding = (alignment_ - unpadded % alignment_) % alignment_;

  Bytes& o = out();
  AppendLe<std::uint32_t>(kLocalHeaderSignature, o);
  AppendLe<std::uint16_t>(0, o);  // version needed
  AppendLe<std::uint16_t>(FlagsOf(size_bytes), o);
  AppendLe<std::uint16_t>(0, o);  // method: stored
  AppendLe<std::uint32_t>(0, o);  // time and date
  AppendLe<std::uint32_t>(0, o);  // CRC-32 and both sizes: in the data descriptor
  AppendLe<std::uint64_t>(0, o);
  AppendLe<std::uint16_t>(static_cast<std::uint16_t>(entry.name.size()), o);
  AppendLe<std::uint16_t>(static_cast<std::uint16_t>(zip64.size() + kPaddingHeaderBytes + padding),
                          o);
  Append(entry.name, o);
  Append(ByteSpan(zip64), o);
  Append("FB", o);
  AppendLe<std::uint16_t>(static_cast<std::uint16_t>(padding), o);
  Append(std::string(padding, 'Z'), o);
}

void Writer::EndRecord() {
  const Entry& entry = entries_.back();
  if (entry.size_bytes == 0) return;
  AppendLe<std::uint32_t>(kDataDescriptorSignature, out());
  AppendLe<std::uint32_t>(entry.crc32, out());
  if (entry.size_bytes >= kSeeZip64) {
    AppendLe<std::uint64_t>(entry.size_bytes, out());
    AppendLe<std::uint64_t>(entry.size_bytes, out());
  } else {
    AppendLe<std::uint32_t>(static_cast<std::uint32_t>(entry.size_bytes), out());
    AppendLe<std::uint32_t>(static_cast<std::uint32_t>(entry.size_bytes), out());
  }
}

void Writer::WriteDirectoryEntry(const Entry& entry) {
  const Bytes zip64 = Zip64Extra(entry.size_bytes, entry.header_at);
  Bytes& o = out();
  AppendLe<std::uint32_t>(kCentralEntrySignature, o);
  AppendLe<std::uint32_t>(0, o);  // version made by, version needed
  AppendLe<std::uint16_t>(FlagsOf(entry.size_bytes), o);
  AppendLe<std::uint16_t>(0, o);  // method: stored
  AppendLe<std::uint32_t>(0, o);  // time and date
  AppendLe<std::uint32_t>(entry.crc32, o);
  AppendLe<std::uint32_t>(Narrow(entry.size_bytes), o);
  AppendLe<std::uint32_t>(Narrow(entry.size_bytes), o);
  AppendLe<std::uint16_t>(static_cast<std::uint16_t>(entry.name.size()), o);
  AppendLe<std::uint16_t>(static_cast<std::uint16_t>(zip64.size()), o);
  AppendLe<std::uint16_t>(0, o);  // comment length
  AppendLe<std::uint32_t>(0, o);  // disk, internal attributes
  AppendLe<std::uint32_t>(0, o);  // external attributes
  AppendLe<std::uint32_t>(Narrow(entry.header_at), o);
  Append(entry.name, o);
  Append(ByteSpan(zip64), o);
}

std::vector<Part> Writer::Finish() && {
  const std::uint64_t directory_at = position();
  for (const Entry& entry : entries_) WriteDirectoryEntry(entry);
  const std::uint64_t end_at = position();
  const std::uint64_t directory_size = end_at - directory_at;
  const std::uint64_t count = entries_.size();

  Bytes& o = out();
  AppendLe<std::uint32_t>(kZip64EndSignature, o);
  AppendLe<std::uint64_t>(kZip64EndBytes - 12, o);  // of what follows this field
  AppendLe<std::uint16_t>(kZip64EndMadeBy, o);
  AppendLe<std::uint16_t>(kZip64EndVersionNeeded, o);
  AppendLe<std::uint64_t>(0, o);  // this disk, disk of the directory
  AppendLe<std::uint64_t>(count, o);
  AppendLe<std::uint64_t>(count, o);
  AppendLe<std::uint64_t>(directory_size, o);
  AppendLe<std::uint64_t>(directory_at, o);

  AppendLe<std::uint32_t>(kZip64LocatorSignature, o);
  AppendLe<std::uint32_t>(0, o);  // disk of the zip64 end record
  AppendLe<std::uint64_t>(end_at, o);
  AppendLe<std::uint32_t>(1, o);  // disks

  const auto short_count =
      static_cast<std::uint16_t>(std::min<std::uint64_t>(count, kSeeZip64Count));
  AppendLe<std::uint32_t>(kEndSignature, o);
  AppendLe<std::uint32_t>(0, o);  // disks
  AppendLe<std::uint16_t>(short_count, o);
  AppendLe<std::uint16_t>(short_count, o);
  AppendLe<std::uint32_t>(Narrow(directory_size), o);
  AppendLe<std::uint32_t>(Narrow(directory_at), o);
  AppendLe<std::uint16_t>(0, o);  // comment length
  return std::move(parts_);
}

}  // namespace ckpt::zip

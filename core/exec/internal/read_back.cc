#include "core/exec/internal/read_back.h"

#include <algorithm>
#include <cstddef>

#include <fmt/format.h>

#include "core/io/checksummed_read.h"

namespace ckpt {

Status ReadBackItem(const ReadableFile& file, const ItemFraming& framing,
                    const TargetTensor& tensor, const WriteItem& item, MutableByteSpan buffer,
                    Hasher& hasher) {
  CKPT_RETURN_IF_ERROR(ReadBackBytes(file, item.offset_bytes, framing.Head(tensor, item), buffer));
  const bool needs_crc32 = framing.needs_crc32();
  std::uint32_t crc32 = 0;
  std::uint64_t at = item.payload_offset;
  const std::uint64_t end = at + item.payload_bytes;
  while (at != end) {
    const MutableByteSpan block = buffer.first(std::min<std::uint64_t>(end - at, buffer.size()));
    CKPT_RETURN_IF_ERROR(file.ReadAt(at, block));
    hasher.Update(block);
    if (needs_crc32) crc32 = Crc32(block, crc32);
    at += block.size();
  }
  return ReadBackBytes(file, end, framing.Tail(tensor, item, crc32), buffer);
}

Status ReadBackAround(const ReadableFile& file, const ItemFraming& framing,
                      const TargetTensor& tensor, const WriteItem& item, const WrittenItem& written,
                      MutableByteSpan buffer) {
  CKPT_RETURN_IF_ERROR(ReadBackBytes(file, item.offset_bytes, framing.Head(tensor, item), buffer));
  return ReadBackBytes(file, item.payload_offset + item.payload_bytes,
                       framing.Tail(tensor, item, written.payload_crc32), buffer);
}

Status ReadBackBytes(const ReadableFile& file, std::uint64_t offset_bytes, ByteSpan written,
                     MutableByteSpan buffer) {
  for (std::uint64_t at = 0; at < written.size();) {
    const ByteSpan expected =
        written.subspan(at, std::min<std::uint64_t>(written.size() - at, buffer.size()));
    const MutableByteSpan block = buffer.first(expected.size());
    CKPT_RETURN_IF_ERROR(file.ReadAt(offset_bytes + at, block));
    const auto [found, differs_from] = std::ranges::mismatch(block, expected);
    if (found != block.end()) {
      const auto position = static_cast<std::uint64_t>(found - block.begin());
      return Error(ErrorKind::kValueMismatch, "the file read back is not what was written")
          .File(file.name())
          .Expected(fmt::format("{:#04x} in byte {}", std::to_integer<unsigned>(*differs_from),
                                offset_bytes + at + position))
          .Actual(fmt::format("{:#04x}", std::to_integer<unsigned>(*found)));
    }
    at += block.size();
  }
  return OkStatus();
}

Status ReadBackFile(const ReadableFile& file, const ManifestFile& written) {
  bool is_same = file.size_bytes() == written.size_bytes;
  Bytes block;
  for (std::size_t b = 0; is_same && b < written.block_crc32c.size(); ++b) {
    const std::uint64_t at = b * kManifestBlockBytes;
    block.resize(std::min(kManifestBlockBytes, written.size_bytes - at));
    CKPT_ASSIGN_OR_RETURN(const std::uint32_t crc32c, ReadAtWithCrc32c(file, at, block));
    is_same = crc32c == written.block_crc32c[b];
  }
  if (is_same) return OkStatus();
  return Error(ErrorKind::kValueMismatch, "the file read back is not what was written")
      .File(file.name());
}

}  // namespace ckpt

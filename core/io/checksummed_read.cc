#include "core/io/checksummed_read.h"

#include "core/base/hash.h"

namespace ckpt {

Result<std::uint32_t> ReadAtWithCrc32c(const ReadableFile& file, std::uint64_t offset,
                                       MutableByteSpan out) {
  std::uint32_t crc = 0;
  CKPT_RETURN_IF_ERROR(file.ReadInPieces(offset, out, [&](ByteSpan piece) {
    crc = Crc32c(piece, crc);
    return OkStatus();
  }));
  return crc;
}

}  // namespace ckpt

#include "core/io/checksummed_read.h"

#include <algorithm>

#include "core/base/hash.h"

namespace ckpt {
namespace {

// A cache holds a piece until its checksum is computed. Shorter ones are slow where a disk must be
// waited for.
constexpr std::size_t kPieceBytes = 1 << 20;

}  // namespace

Result<std::uint32_t> ReadAtWithCrc32c(const ReadableFile& file, std::uint64_t offset,
                                       MutableByteSpan out) {
  std::uint32_t crc = 0;
  while (!out.empty()) {
    const MutableByteSpan piece = out.first(std::min(out.size(), kPieceBytes));
    CKPT_RETURN_IF_ERROR(file.ReadAt(offset, piece));
    crc = Crc32c(piece, crc);
    offset += piece.size();
    out = out.subspan(piece.size());
  }
  return crc;
}

}  // namespace ckpt

#include "core/exec/block_checksums.h"

#include <algorithm>

#include "core/base/checked_math.h"
#include "core/base/hash.h"

namespace ckpt {
namespace {

// CRC-32C of `count` zero bytes, count < one block.
std::uint32_t Crc32cOfZeros(std::uint64_t count) {
  static const Bytes zeros(kManifestBlockBytes);
  return Crc32c(ByteSpan(zeros).first(count));
}

}  // namespace

void ChecksumStream::Update(ByteSpan bytes) {
  while (!bytes.empty()) {
    const std::uint64_t in_block = at_ % kManifestBlockBytes;
    const ByteSpan part =
        bytes.first(std::min<std::uint64_t>(bytes.size(), kManifestBlockBytes - in_block));
    if (pieces_.empty() || in_block == 0) {
      pieces_.push_back({.offset_bytes = at_, .length_bytes = 0, .crc32c = 0});
    }
    ChecksumPiece& piece = pieces_.back();
    piece.crc32c = Crc32c(part, piece.crc32c);
    piece.length_bytes += static_cast<std::uint32_t>(part.size());
    at_ += part.size();
    bytes = bytes.subspan(part.size());
  }
}

Result<std::vector<std::uint32_t>> CombineChecksums(std::vector<ChecksumPiece> pieces,
                                                    std::uint64_t size_bytes) {
  std::sort(pieces.begin(), pieces.end(), [](const ChecksumPiece& a, const ChecksumPiece& b) {
    return a.offset_bytes < b.offset_bytes;
  });
  std::vector<std::uint32_t> blocks;
  blocks.reserve(CeilDiv(size_bytes, kManifestBlockBytes));
  auto piece = pieces.begin();
  for (std::uint64_t begin = 0; begin < size_bytes; begin += kManifestBlockBytes) {
    const std::uint64_t end = std::min(begin + kManifestBlockBytes, size_bytes);
    std::uint64_t at = begin;
    std::uint32_t crc = 0;
    const auto append_zeros = [&](std::uint64_t until) {
      crc = Crc32cConcat(crc, Crc32cOfZeros(until - at), until - at);
      at = until;
    };
    for (; piece != pieces.end() && piece->offset_bytes < end; ++piece) {
      if (piece->offset_bytes < at || piece->length_bytes > end - piece->offset_bytes) {
        return Error(ErrorKind::kInternal, "checksummed pieces overlap or leave their block");
      }
      if (piece->offset_bytes > at) append_zeros(piece->offset_bytes);
      crc = Crc32cConcat(crc, piece->crc32c, piece->length_bytes);
      at += piece->length_bytes;
    }
    if (at < end) append_zeros(end);
    blocks.push_back(crc);
  }
  if (piece != pieces.end()) {
    return Error(ErrorKind::kInternal, "a checksummed piece lies outside its file");
  }
  return blocks;
}

}  // namespace ckpt

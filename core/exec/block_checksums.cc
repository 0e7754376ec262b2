#include "core/exec/block_checksums.h"

#include <algorithm>

#include "core/base/checked_math.h"
#include "core/base/hash.h"
#include "core/manifest/manifest.h"

namespace ckpt {
namespace {

// `count` zero bytes, at most one block.
ByteSpan Zeros(std::uint64_t count) {
  static const Bytes zeros(kManifestBlockBytes);
  return ByteSpan(zeros).first(count);
}

struct Checksums {
  std::uint32_t crc32c = 0;
  std::uint32_t crc32 = 0;
};

// Of `count` zero bytes, at most one block. Nearly every block is whole, so that one is kept.
Checksums ChecksumsOfZeros(std::uint64_t count) {
  const auto compute = [](std::uint64_t bytes) {
    return Checksums{Crc32c(Zeros(bytes)), Crc32(Zeros(bytes))};
  };
  static const Checksums whole = compute(kManifestBlockBytes);
  return count == kManifestBlockBytes ? whole : compute(count);
}

}  // namespace

void ChecksumStream::Update(ByteSpan bytes) {
  while (!bytes.empty()) {
    const std::uint64_t in_block = at_ % kManifestBlockBytes;
    const ByteSpan part =
        bytes.first(std::min<std::uint64_t>(bytes.size(), kManifestBlockBytes - in_block));
    if (pieces_.empty() || in_block == 0) {
      pieces_.push_back({.offset_bytes = at_, .length_bytes = 0});
    }
    ChecksumPiece& piece = pieces_.back();
    piece.crc32c = Crc32c(part, piece.crc32c);
    piece.crc32 = Crc32(part, piece.crc32);
    piece.length_bytes += static_cast<std::uint32_t>(part.size());
    at_ += part.size();
    bytes = bytes.subspan(part.size());
  }
}

Result<BlockChecksums> CombineChecksums(std::vector<ChecksumPiece> pieces,
                                        std::uint64_t size_bytes) {
  std::sort(pieces.begin(), pieces.end(), [](const ChecksumPiece& a, const ChecksumPiece& b) {
    return a.offset_bytes < b.offset_bytes;
  });
  BlockChecksums blocks;
  blocks.crc32c.reserve(CeilDiv(size_bytes, kManifestBlockBytes));
  blocks.crc32.reserve(CeilDiv(size_bytes, kManifestBlockBytes));
  auto piece = pieces.begin();
  for (std::uint64_t begin = 0; begin < size_bytes; begin += kManifestBlockBytes) {
    const std::uint64_t end = std::min(begin + kManifestBlockBytes, size_bytes);
    std::uint64_t at = begin;
    std::uint32_t crc32c = 0;
    std::uint32_t crc32 = 0;
    const auto append_zeros = [&](std::uint64_t until) {
      const ByteSpan zeros = Zeros(until - at);
      crc32c = Crc32c(zeros, crc32c);
      crc32 = Crc32(zeros, crc32);
      at = until;
    };
    for (; piece != pieces.end() && piece->offset_bytes < end; ++piece) {
      if (piece->offset_bytes < at || piece->length_bytes > end - piece->offset_bytes) {
        return Error(ErrorKind::kInternal, "checksummed pieces overlap or leave their block");
      }
      if (piece->offset_bytes > at) append_zeros(piece->offset_bytes);
      crc32c = Crc32cConcat(crc32c, piece->crc32c, piece->length_bytes);
      crc32 = Crc32Concat(crc32, piece->crc32, piece->length_bytes);
      at += piece->length_bytes;
    }
    if (at < end) append_zeros(end);
    blocks.crc32c.push_back(crc32c);
    blocks.crc32.push_back(crc32);
  }
  if (piece != pieces.end()) {
    return Error(ErrorKind::kInternal, "a checksummed piece lies outside its file");
  }
  return blocks;
}

// A checksum is linear but for a constant, which is that of the zeros: where no byte is in both
// parts, the whole is their sum.
BlockChecksums JoinParts(const BlockChecksums& a, const BlockChecksums& b,
                         std::uint64_t size_bytes) {
  BlockChecksums joined;
  for (std::size_t block = 0; block < a.crc32c.size(); ++block) {
    const Checksums zeros =
        ChecksumsOfZeros(std::min(kManifestBlockBytes, size_bytes - block * kManifestBlockBytes));
    joined.crc32c.push_back(a.crc32c[block] ^ b.crc32c[block] ^ zeros.crc32c);
    joined.crc32.push_back(a.crc32[block] ^ b.crc32[block] ^ zeros.crc32);
  }
  return joined;
}

}  // namespace ckpt

// Checksums of every block of a file whose parts are written in any order.
#ifndef CKPT_CORE_EXEC_BLOCK_CHECKSUMS_H_
#define CKPT_CORE_EXEC_BLOCK_CHECKSUMS_H_

#include <cstdint>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/result.h"

namespace ckpt {

// A checksummed piece that lies within one block of kManifestBlockBytes.
struct ChecksumPiece {
  std::uint64_t offset_bytes = 0;
  std::uint32_t length_bytes = 0;
  std::uint32_t crc32c = 0;
  std::uint32_t crc32 = 0;

  friend bool operator==(const ChecksumPiece&, const ChecksumPiece&) = default;
};

// Checksums bytes that are written front to back into one part of a file. For one thread.
class ChecksumStream {
 public:
  explicit ChecksumStream(std::uint64_t offset_bytes) : at_(offset_bytes) {}
  // The next bytes.
  void Update(ByteSpan bytes);
  // One piece per block, in order.
  [[nodiscard]] const std::vector<ChecksumPiece>& pieces() const { return pieces_; }

 private:
  std::uint64_t at_;
  std::vector<ChecksumPiece> pieces_;
};

// The checksums as ManifestFile stores them.
struct BlockChecksums {
  std::vector<std::uint32_t> crc32c;
  std::vector<std::uint32_t> crc32;

  friend bool operator==(const BlockChecksums&, const BlockChecksums&) = default;
};

// The checksums of each block of a file of `size_bytes`. Bytes that no piece covers are zeros.
// Errors: kInternal if pieces overlap, reach outside the file or cross block bounds.
Result<BlockChecksums> CombineChecksums(std::vector<ChecksumPiece> pieces,
                                        std::uint64_t size_bytes);

// Those of a file of which two processes each wrote a part: both count the other's bytes as zeros.
// REQUIRES: both are of a file of `size_bytes`.
[[nodiscard]] BlockChecksums JoinParts(const BlockChecksums& a, const BlockChecksums& b,
                                       std::uint64_t size_bytes);

}  // namespace ckpt

#endif  // CKPT_CORE_EXEC_BLOCK_CHECKSUMS_H_

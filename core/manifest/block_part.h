// BlockPart: what was read of a block of a file, and the checksum of that.
#ifndef CKPT_CORE_MANIFEST_BLOCK_PART_H_
#define CKPT_CORE_MANIFEST_BLOCK_PART_H_

#include <compare>
#include <cstdint>

namespace ckpt {

// Ordered by where the bytes lie. Ranks send it to each other as it lies in memory.
struct BlockPart {
  std::uint64_t block = 0;  // of kManifestBlockBytes
  std::uint32_t file = 0;   // position in the manifest's files
  std::uint32_t begin = 0;  // in the block
  std::uint32_t size_bytes = 0;
  std::uint32_t crc32c = 0;

  friend auto operator<=>(const BlockPart&, const BlockPart&) = default;
};
static_assert(std::has_unique_object_representations_v<BlockPart>);

}  // namespace ckpt

#endif  // CKPT_CORE_MANIFEST_BLOCK_PART_H_
